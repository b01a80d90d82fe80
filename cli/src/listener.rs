//! `/metrics` and `/health` over HTTP, for those who watch a process.
//!
//! Owns the listening socket and the connections on it. `/metrics` is the registry's text,
//! `/health` says that the pipeline runs: it tells nothing of other servers, because who restarts a
//! process for their failures only adds one of its own.
//!
//! Invariant: the listener ends when the pipeline does. Connections beyond the limit wait in the
//! kernel's queue; one that says nothing for a while is closed.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::header::CONTENT_TYPE;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use prometheus_client::encoding::text::encode;
use prometheus_client::registry::Registry;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use walbraid_schemas::notice::{Stop, StopKind};

const CONNECTIONS_MAX: usize = 16;
const REQUEST_TIMEOUT_MS: u64 = 10_000;
const ACCEPT_PAUSE_MS: u64 = 100;
const METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
const TEXT: &str = "text/plain; charset=utf-8";

/// A listener that is bound and not yet served.
pub(crate) struct Listener {
    socket: TcpListener,
    registry: Arc<Registry>,
}

impl Listener {
    /// Binds the address, so that a port in use is known before anything starts.
    pub(crate) async fn bind(address: SocketAddr, registry: Arc<Registry>) -> Result<Self, Stop> {
        let refuse = |error: std::io::Error| {
            Stop::new(
                StopKind::Usage,
                format!("cannot listen on {address}: {error}"),
            )
            .hint("Set metrics.listen to a free address, with port 0 to any free port.")
        };
        let socket = TcpListener::bind(address).await.map_err(refuse)?;
        let address = socket.local_addr().map_err(refuse)?;
        tracing::info!(%address, "metrics are served at http://{address}/metrics");
        Ok(Self { socket, registry })
    }

    /// Serves until `shutdown`.
    pub(crate) async fn serve(self, shutdown: CancellationToken) {
        let mut connections = JoinSet::new();
        loop {
            tokio::select! {
                () = shutdown.cancelled() => break,
                Some(_) = connections.join_next() => {}
                accepted = self.socket.accept(), if connections.len() < CONNECTIONS_MAX => {
                    match accepted {
                        Ok((stream, _)) => {
                            connections.spawn(connection(stream, Arc::clone(&self.registry)));
                        }
                        Err(error) => {
                            // Out of descriptors, mostly: without a pause this would spin.
                            tracing::debug!(%error, "a metrics connection was not accepted");
                            tokio::time::sleep(Duration::from_millis(ACCEPT_PAUSE_MS)).await;
                        }
                    }
                }
            }
        }
        connections.shutdown().await;
    }
}

async fn connection(stream: TcpStream, registry: Arc<Registry>) {
    let service = service_fn(move |request: Request<Incoming>| {
        let response = respond(request.method(), request.uri().path(), &registry);
        async move { Ok::<_, Infallible>(response) }
    });
    let served = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(Duration::from_millis(REQUEST_TIMEOUT_MS))
        .serve_connection(TokioIo::new(stream), service)
        .await;
    if let Err(error) = served {
        tracing::debug!(%error, "a metrics connection ended early");
    }
}

fn respond(method: &Method, path: &str, registry: &Registry) -> Response<Full<Bytes>> {
    if method != Method::GET && method != Method::HEAD {
        return answer(
            StatusCode::METHOD_NOT_ALLOWED,
            TEXT,
            "only GET\n".to_owned(),
        );
    }
    match path {
        "/metrics" => {
            let mut text = String::new();
            match encode(&mut text, registry) {
                Ok(()) => answer(StatusCode::OK, METRICS, text),
                Err(error) => answer(StatusCode::INTERNAL_SERVER_ERROR, TEXT, error.to_string()),
            }
        }
        "/health" => answer(StatusCode::OK, TEXT, "ok\n".to_owned()),
        _ => answer(
            StatusCode::NOT_FOUND,
            TEXT,
            "see /metrics and /health\n".to_owned(),
        ),
    }
}

fn answer(status: StatusCode, kind: &'static str, text: String) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from(text)));
    *response.status_mut() = status;
    response
        .headers_mut()
        .insert(CONTENT_TYPE, hyper::header::HeaderValue::from_static(kind));
    response
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt;
    use prometheus_client::metrics::counter::Counter;

    use super::*;

    #[tokio::test]
    async fn paths() {
        let mut registry = Registry::default();
        let counter: Counter = Counter::default();
        counter.inc();
        registry.register("walbraid_things", "Things", counter);
        let check = async |method: Method, path: &str, status: StatusCode, part: &str| {
            let response = respond(&method, path, &registry);
            assert_eq!(response.status(), status, "{path}");
            let body = response
                .into_body()
                .collect()
                .await
                .expect("whole")
                .to_bytes();
            let text = String::from_utf8_lossy(&body).into_owned();
            assert!(text.contains(part), "{path}: {text}");
        };
        check(
            Method::GET,
            "/metrics",
            StatusCode::OK,
            "walbraid_things_total 1",
        )
        .await;
        check(Method::GET, "/health", StatusCode::OK, "ok").await;
        check(Method::GET, "/", StatusCode::NOT_FOUND, "/metrics").await;
        check(
            Method::POST,
            "/metrics",
            StatusCode::METHOD_NOT_ALLOWED,
            "GET",
        )
        .await;
    }

    #[tokio::test]
    async fn a_port_in_use_is_named() {
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        let first = Listener::bind(any, Arc::default()).await.expect("free");
        let taken = first.socket.local_addr().expect("bound");
        let stop = Listener::bind(taken, Arc::default())
            .await
            .err()
            .expect("in use");
        assert!(stop.message.contains(&taken.to_string()), "{stop}");
    }
}
