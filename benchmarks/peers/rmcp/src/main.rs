//! The peer written for rmcp, the official Rust SDK: `rmcp-peer PORT`.
//!
//! One service answers both eras. `json_response` answers a call with JSON, unless its handler sends a notification first:
//! then the answer is a stream. Sessions of the older revisions are on, as they are by default, and so is what a session keeps
//! to resume its streams: rmcp has no switch for that. The tools are built once and shared, because the service asks for a
//! handler at every request.

use std::{env, io, sync::Arc};

use axum::{Router, serve::ListenerExt};
use rmcp::{
    ErrorData, Peer, RoleServer, ServerHandler, ServiceExt,
    handler::server::{router::tool::ToolRouter, wrapper::Parameters},
    model::{
        Implementation, ProgressNotificationParam, RequestMetaObject,
        ResourceUpdatedNotificationParam, ServerCapabilities, ServerConfig, SubscribeRequestParams,
        SubscriptionFilter,
    },
    schemars::JsonSchema,
    service::{RequestContext, SubscriptionContext},
    tool, tool_handler, tool_router,
    transport::{
        io::stdio_pipes,
        streamable_http_server::{
            StreamableHttpServerConfig, StreamableHttpService, session::local::LocalSessionManager,
        },
    },
};
use rustix::time::{ClockId, clock_gettime};
use serde::Deserialize;
use tokio::{
    net::TcpListener,
    sync::broadcast::{self, error::RecvError},
    task::{spawn_blocking, yield_now},
};

const VALUE: &str = "bench://value";
const BACKLOG: usize = 1024;
const TOOLS: u32 = 50;
const NOTIFICATIONS: u32 = 3;

#[derive(Deserialize, JsonSchema)]
#[schemars(crate = "rmcp::schemars")]
struct Echo {
    text: String,
}

#[derive(Deserialize, JsonSchema)]
#[schemars(crate = "rmcp::schemars")]
struct Chatter {
    count: u32,
}

struct Bench {
    tools: ToolRouter<Self>,
    changes: broadcast::Sender<()>,
}

#[tool_router]
impl Bench {
    fn new() -> Self {
        Self {
            tools: with_mixture(Self::tool_router()),
            changes: broadcast::Sender::new(BACKLOG),
        }
    }

    /// Return the text.
    #[tool]
    async fn echo(&self, Parameters(Echo { text }): Parameters<Echo>) -> String {
        text
    }

    /// Report progress as often as asked for.
    #[tool]
    async fn chatter(
        &self,
        Parameters(Chatter { count }): Parameters<Chatter>,
        meta: RequestMetaObject,
        peer: Peer<RoleServer>,
    ) -> Result<String, ErrorData> {
        report(&meta, &peer, count).await?;
        Ok("done".into())
    }

    /// Return the text when others have had their turn.
    #[tool]
    async fn later(&self, Parameters(Echo { text }): Parameters<Echo>) -> String {
        yield_now().await;
        text
    }

    /// Return the text from a thread that may block.
    #[tool]
    async fn in_a_thread(
        &self,
        Parameters(Echo { text }): Parameters<Echo>,
    ) -> Result<String, ErrorData> {
        spawn_blocking(|| text)
            .await
            .map_err(|error| ErrorData::internal_error(error.to_string(), None))
    }

    /// Return the text after some notifications.
    #[tool]
    async fn with_progress(
        &self,
        Parameters(Echo { text }): Parameters<Echo>,
        meta: RequestMetaObject,
        peer: Peer<RoleServer>,
    ) -> Result<String, ErrorData> {
        report(&meta, &peer, NOTIFICATIONS).await?;
        Ok(text)
    }

    /// Announce a change to all who asked for it.
    #[tool]
    async fn change(&self) -> String {
        let made = clock();
        let _ = self.changes.send(()); // an error says that nobody listens
        made
    }
}

#[tool_handler(router = self.tools)]
impl ServerHandler for Bench {
    fn get_info(&self) -> ServerConfig {
        let capabilities = ServerCapabilities::builder()
            .enable_tools()
            .enable_resources()
            .enable_resources_subscribe()
            .build();
        ServerConfig::new(capabilities).with_server_info(Implementation::new("bench", "1"))
    }

    fn accepted_subscription_filter(
        &self,
        requested: &SubscriptionFilter,
    ) -> Option<SubscriptionFilter> {
        Some(requested.supported_by(&self.get_info().capabilities))
    }

    async fn listen(&self, context: SubscriptionContext) -> Result<(), ErrorData> {
        let mut changes = self.changes.subscribe();
        loop {
            tokio::select! {
                () = context.cancelled() => return Ok(()),
                _ = changes.recv() => {
                    if context.sink().notify_resource_updated(VALUE).await.is_err() {
                        return Ok(());
                    }
                }
            }
        }
    }

    async fn subscribe(
        &self,
        request: SubscribeRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        let mut changes = self.changes.subscribe();
        tokio::spawn(async move {
            while !matches!(changes.recv().await, Err(RecvError::Closed)) {
                let update = ResourceUpdatedNotificationParam::new(request.uri.clone());
                if context.peer.notify_resource_updated(update).await.is_err() {
                    break;
                }
            }
        });
        Ok(())
    }
}

/// Add the tools of the mixture: what each does, the last digit of its name says.
fn with_mixture(mut tools: ToolRouter<Bench>) -> ToolRouter<Bench> {
    for number in 0..TOOLS {
        let mut route = tools.map[match number % 10 {
            0..=4 => "later",
            5 => "in_a_thread",
            6 => "with_progress",
            _ => "echo",
        }]
        .clone();
        route.attr.name = format!("tool_{number:02}").into();
        tools.add_route(route);
    }
    tools
}

async fn report(
    meta: &RequestMetaObject,
    peer: &Peer<RoleServer>,
    count: u32,
) -> Result<(), ErrorData> {
    let token = meta
        .get_progress_token()
        .ok_or_else(|| ErrorData::invalid_params("no progress token", None))?;
    for number in 1..=count {
        let progress = ProgressNotificationParam::new(token.clone(), number.into());
        peer.notify_progress(progress.with_message(clock()))
            .await
            .map_err(|error| ErrorData::internal_error(error.to_string(), None))?;
    }
    Ok(())
}

fn clock() -> String {
    let now = clock_gettime(ClockId::Monotonic);
    format!("clock={}", now.tv_sec * 1_000_000_000 + now.tv_nsec)
}

#[tokio::main]
async fn main() -> io::Result<()> {
    let port = env::args()
        .nth(1)
        .and_then(|argument| argument.parse::<u16>().ok())
        .expect("usage: rmcp-peer PORT");
    let bench = Arc::new(Bench::new());
    if env::var_os("BENCH_STDIO").is_some() {
        let running = bench.serve(stdio_pipes()).await.map_err(io::Error::other)?;
        running.waiting().await?;
        return Ok(());
    }
    let service = StreamableHttpService::new(
        move || Ok(bench.clone()),
        Arc::new(LocalSessionManager::default()),
        StreamableHttpServerConfig::default().with_json_response(true),
    );
    // Events leave as they are written: axum leaves it to its user to say so.
    let listener = TcpListener::bind(("127.0.0.1", port))
        .await?
        .tap_io(|stream| {
            let _ = stream.set_nodelay(true);
        });
    axum::serve(listener, Router::new().route_service("/mcp", service)).await
}
