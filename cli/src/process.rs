//! `walbraid produce` and `walbraid consume`: the pipelines, until told to stop.
//!
//! Owns what both need around them: the registry of metrics and its listener, and SIGTERM and
//! SIGINT, which ask the pipeline to finish what is in flight and end with exit code 0. A second
//! signal ends the process at once; what was in flight is then done again at the next start.

use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;

use prometheus_client::registry::Registry;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;
use walbraid_schemas::{Stop, StopKind};

use crate::config::Config;
use crate::listener::Listener;

/// Runs the producer.
pub(crate) async fn produce(mut config: Config) -> Result<(), Stop> {
    let connect = &mut config.producer.publisher.connect;
    *connect = connect
        .clone()
        .with_default_application_name("walbraid produce");
    let mut registry = Registry::default();
    let shutdown = CancellationToken::new();
    let pipeline = walbraid_producer::run(config.producer, &mut registry, shutdown.clone());
    run("producer", config.listen, registry, shutdown, pipeline).await
}

/// Runs the consumer.
pub(crate) async fn consume(mut config: Config) -> Result<(), Stop> {
    let connect = &mut config.consumer.subscriber.connect;
    *connect = connect
        .clone()
        .with_default_application_name("walbraid consume");
    let mut registry = Registry::default();
    let shutdown = CancellationToken::new();
    let metrics = walbraid_consumer::metrics::Metrics::new(&config.stream, &mut registry);
    let pipeline = walbraid_consumer::run_with(config.consumer, metrics, shutdown.clone());
    run("consumer", config.listen, registry, shutdown, pipeline).await
}

async fn run(
    role: &str,
    listen: Option<SocketAddr>,
    registry: Registry,
    shutdown: CancellationToken,
    pipeline: impl Future<Output = Result<(), Stop>>,
) -> Result<(), Stop> {
    let listener = match listen {
        Some(address) => Some(Listener::bind(address, Arc::new(registry)).await?),
        None => None,
    };
    let listening = CancellationToken::new();
    let serving = listener.map(|listener| tokio::spawn(listener.serve(listening.clone())));
    let signals = tokio::spawn(signals(shutdown)?);
    tracing::info!(
        version = env!("CARGO_PKG_VERSION"),
        "walbraid {role} starts"
    );
    let ended = pipeline.await;
    signals.abort();
    let _ = signals.await;
    listening.cancel();
    if let Some(Err(error)) = match serving {
        Some(serving) => Some(serving.await),
        None => None,
    } {
        tracing::error!(%error, "metrics listener failed");
    }
    if ended.is_ok() {
        tracing::info!("walbraid {role} ended");
    }
    ended
}

/// Waits for the first signal and asks for the end; a second one does not wait.
fn signals(shutdown: CancellationToken) -> Result<impl Future<Output = ()>, Stop> {
    let listen = |kind| {
        signal(kind).map_err(|error| {
            Stop::new(
                StopKind::Internal,
                format!("cannot listen for signals: {error}"),
            )
        })
    };
    let mut terminate = listen(SignalKind::terminate())?;
    let mut interrupt = listen(SignalKind::interrupt())?;
    Ok(async move {
        let mut asked = false;
        loop {
            tokio::select! {
                _ = terminate.recv() => {}
                _ = interrupt.recv() => {}
            }
            if asked {
                tracing::warn!("second signal: ends at once");
                std::process::exit(i32::from(StopKind::Internal.exit_code()));
            }
            tracing::info!("asked to stop; finishes what is in flight");
            shutdown.cancel();
            asked = true;
        }
    })
}
