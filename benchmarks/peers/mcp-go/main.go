// The peer written for mcp-go: mcp-go PORT.
//
// One server answers both eras, a call with JSON unless its handler sends a
// notification first. Arguments are validated, which its documentation
// recommends to new servers. Sessions are stateful, so that one that was
// deleted is known to be. A change is announced as tools/list_changed:
// resources/updated can be sent to sessions by their id alone, which a
// listening client of 2026-07-28 does not have.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"log/slog"
	"net/http"
	"os"
	"runtime"

	"github.com/mark3labs/mcp-go/mcp"
	"github.com/mark3labs/mcp-go/server"
	"golang.org/x/sys/unix"
)

const (
	tools         = 50
	notifications = 3
)

func main() {
	if len(os.Args) != 2 {
		log.Fatal("usage: mcp-go PORT")
	}
	bench := server.NewMCPServer("bench", "1",
		server.WithToolCapabilities(true),
		server.WithInputSchemaValidation(),
	)
	bench.AddTool(
		mcp.NewTool("echo", mcp.WithDescription("Return the text."), mcp.WithString("text", mcp.Required())),
		echo,
	)
	bench.AddTool(
		mcp.NewTool("chatter",
			mcp.WithDescription("Report progress as often as asked for."),
			mcp.WithInteger("count", mcp.Required()),
		),
		chatter,
	)
	bench.AddTool(
		mcp.NewTool("change", mcp.WithDescription("Announce a change to all who asked for it.")),
		change,
	)
	for number := range tools {
		tool := mcp.NewTool(fmt.Sprintf("tool_%02d", number),
			mcp.WithDescription("Return the text, in one way or another."),
			mcp.WithString("text", mcp.Required()),
		)
		switch number % 10 {
		case 0, 1, 2, 3, 4:
			bench.AddTool(tool, later)
		case 6:
			bench.AddTool(tool, withProgress)
		default: // A function may block where it is.
			bench.AddTool(tool, echo)
		}
	}
	if os.Getenv("BENCH_STDIO") != "" {
		if err := server.ServeStdio(bench); err != nil {
			log.Fatal(err)
		}
		return
	}
	address := "127.0.0.1:" + os.Args[1]
	if os.Getenv("BENCH_HTTP_SSE") != "" {
		log.Fatal(server.NewSSEServer(bench).Start(address))
	}
	options := []server.StreamableHTTPOption{
		server.WithStateful(true),
		server.WithStreamableHTTPLogger(slog.New(slog.NewTextHandler(io.Discard, nil))),
	}
	if os.Getenv("BENCH_RESUMPTION") != "" {
		options = append(options, server.WithEventStore(server.NewInMemoryEventStore()))
	}
	http.Handle("/mcp", server.NewStreamableHTTPServer(bench, options...))
	listener := &http.Server{Addr: address, Protocols: new(http.Protocols)}
	listener.Protocols.SetHTTP1(true)
	listener.Protocols.SetUnencryptedHTTP2(true)
	log.Fatal(listener.ListenAndServe())
}

func echo(_ context.Context, request mcp.CallToolRequest) (*mcp.CallToolResult, error) {
	text, err := request.RequireString("text")
	if err != nil {
		return nil, err
	}
	return mcp.NewToolResultText(text), nil
}

func chatter(ctx context.Context, request mcp.CallToolRequest) (*mcp.CallToolResult, error) {
	count, err := request.RequireInt("count")
	if err != nil {
		return nil, err
	}
	if err := report(ctx, request, count); err != nil {
		return nil, err
	}
	return mcp.NewToolResultText("done"), nil
}

func later(ctx context.Context, request mcp.CallToolRequest) (*mcp.CallToolResult, error) {
	runtime.Gosched()
	return echo(ctx, request)
}

func withProgress(ctx context.Context, request mcp.CallToolRequest) (*mcp.CallToolResult, error) {
	if err := report(ctx, request, notifications); err != nil {
		return nil, err
	}
	return echo(ctx, request)
}

func report(ctx context.Context, request mcp.CallToolRequest, count int) error {
	if request.Params.Meta == nil || request.Params.Meta.ProgressToken == nil {
		return errors.New("no progress token")
	}
	for number := 1; number <= count; number++ {
		if err := notify(ctx, request.Params.Meta.ProgressToken, number); err != nil {
			return err
		}
	}
	// mcp-go drops a notification that it has taken up but not yet written when
	// the handler returns: one in every other call, if nothing is done about it.
	runtime.Gosched()
	return nil
}

// notify sends a notification as soon as there is room for it: mcp-go refuses
// the ones that come faster than it writes them.
func notify(ctx context.Context, token mcp.ProgressToken, number int) error {
	for {
		err := server.ServerFromContext(ctx).SendNotificationToClient(ctx, "notifications/progress", map[string]any{
			"progressToken": token,
			"progress":      number,
			"message":       clock(),
		})
		if !errors.Is(err, server.ErrNotificationChannelBlocked) || ctx.Err() != nil {
			return err
		}
		runtime.Gosched()
	}
}

func change(ctx context.Context, _ mcp.CallToolRequest) (*mcp.CallToolResult, error) {
	made := clock()
	server.ServerFromContext(ctx).SendNotificationToAllClients(mcp.MethodNotificationToolsListChanged, nil)
	return mcp.NewToolResultText(made), nil
}

func clock() string {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
		log.Fatal(err)
	}
	return fmt.Sprintf("clock=%d", now.Nano())
}
