// The peer written for the official Go SDK: go-sdk PORT.
//
// The SDK serves 2026-07-28 by a stateless handler and sessions of the older
// revisions by a stateful one, so there are two over one server, told apart
// by the header that names the revision. A handler answers all calls with
// JSON, and a call's notifications do not reach its client, or all of them
// with streams: JSON unless BENCH_STREAMS is set.
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net/http"
	"os"
	"runtime"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"golang.org/x/sys/unix"
)

const (
	value    = "bench://value"
	modern   = "2026-07-28"
	revision = "Mcp-Protocol-Version"

	tools         = 50
	notifications = 3
)

type echoArguments struct {
	Text string `json:"text"`
}

type chatterArguments struct {
	Count int `json:"count"`
}

func main() {
	if len(os.Args) != 2 {
		log.Fatal("usage: go-sdk PORT")
	}
	bench := mcp.NewServer(&mcp.Implementation{Name: "bench", Version: "1"}, &mcp.ServerOptions{
		SubscribeHandler:   func(context.Context, *mcp.SubscribeRequest) error { return nil },
		UnsubscribeHandler: func(context.Context, *mcp.UnsubscribeRequest) error { return nil },
	})
	mcp.AddTool(bench, &mcp.Tool{Name: "echo", Description: "Return the text."}, echo)
	mcp.AddTool(bench, &mcp.Tool{Name: "chatter", Description: "Report progress as often as asked for."}, chatter)
	mcp.AddTool(bench, &mcp.Tool{Name: "change", Description: "Announce a change to all who asked for it."},
		func(ctx context.Context, _ *mcp.CallToolRequest, _ struct{}) (*mcp.CallToolResult, any, error) {
			made := clock()
			err := bench.ResourceUpdated(ctx, &mcp.ResourceUpdatedNotificationParams{URI: value})
			return text(made), nil, err
		})
	for number := range tools {
		tool := &mcp.Tool{Name: fmt.Sprintf("tool_%02d", number), Description: "Return the text, in one way or another."}
		switch number % 10 {
		case 0, 1, 2, 3, 4:
			mcp.AddTool(bench, tool, later)
		case 6:
			mcp.AddTool(bench, tool, withProgress)
		default: // A function may block where it is.
			mcp.AddTool(bench, tool, echo)
		}
	}
	bench.AddResource(&mcp.Resource{URI: value, Name: "value"}, read)

	if os.Getenv("BENCH_STDIO") != "" {
		if err := bench.Run(context.Background(), &mcp.StdioTransport{}); err != nil {
			log.Fatal(err)
		}
		return
	}
	serve := func(*http.Request) *mcp.Server { return bench }
	options := mcp.StreamableHTTPOptions{JSONResponse: os.Getenv("BENCH_STREAMS") == ""}
	stateless := options
	stateless.Stateless = true
	if os.Getenv("BENCH_RESUMPTION") != "" {
		options.EventStore = mcp.NewMemoryEventStore(nil)
	}
	requests := mcp.NewStreamableHTTPHandler(serve, &stateless)
	sessions := mcp.NewStreamableHTTPHandler(serve, &options)
	http.HandleFunc("/mcp", func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get(revision) >= modern {
			requests.ServeHTTP(w, r)
		} else {
			sessions.ServeHTTP(w, r)
		}
	})
	if os.Getenv("BENCH_HTTP_SSE") != "" {
		http.Handle("/sse", mcp.NewSSEHandler(serve, nil))
	}
	listener := &http.Server{Addr: "127.0.0.1:" + os.Args[1], Protocols: new(http.Protocols)}
	listener.Protocols.SetHTTP1(true)
	listener.Protocols.SetUnencryptedHTTP2(true)
	log.Fatal(listener.ListenAndServe())
}

func echo(_ context.Context, _ *mcp.CallToolRequest, arguments echoArguments) (*mcp.CallToolResult, any, error) {
	return text(arguments.Text), nil, nil
}

func chatter(
	ctx context.Context, request *mcp.CallToolRequest, arguments chatterArguments,
) (*mcp.CallToolResult, any, error) {
	return text("done"), nil, report(ctx, request, arguments.Count)
}

func later(
	ctx context.Context, request *mcp.CallToolRequest, arguments echoArguments,
) (*mcp.CallToolResult, any, error) {
	runtime.Gosched()
	return echo(ctx, request, arguments)
}

func withProgress(
	ctx context.Context, request *mcp.CallToolRequest, arguments echoArguments,
) (*mcp.CallToolResult, any, error) {
	return text(arguments.Text), nil, report(ctx, request, notifications)
}

func report(ctx context.Context, request *mcp.CallToolRequest, count int) error {
	token := request.Params.GetProgressToken()
	if token == nil {
		return errors.New("no progress token")
	}
	for number := 1; number <= count; number++ {
		err := request.Session.NotifyProgress(ctx, &mcp.ProgressNotificationParams{
			ProgressToken: token,
			Progress:      float64(number),
			Message:       clock(),
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func read(context.Context, *mcp.ReadResourceRequest) (*mcp.ReadResourceResult, error) {
	return &mcp.ReadResourceResult{Contents: []*mcp.ResourceContents{{URI: value, Text: "value"}}}, nil
}

func text(said string) *mcp.CallToolResult {
	return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: said}}}
}

func clock() string {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
		log.Fatal(err)
	}
	return fmt.Sprintf("clock=%d", now.Nano())
}
