//! A TCP proxy in front of a server, for faults of the network.
//!
//! It can hold bytes back (a peer that is there but silent: a half-open connection) and cut (every
//! connection is reset, new ones are refused until it is mended). It never changes bytes.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, watch};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{Instant, sleep_until};

const CHUNK_BYTES: usize = 64 * 1024;
/// Chunks on the way in one direction.
const CHUNKS_MAX: usize = 64;

/// What the network does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Weather {
    /// Bytes pass, each chunk this much later.
    Passing(Duration),
    /// Bytes are held back, connections stay.
    Frozen,
    /// Nothing connects; what was connected is gone.
    Cut,
}

/// A proxy on a port of its own.
pub struct Proxy {
    address: SocketAddr,
    weather: watch::Sender<Weather>,
    carried_bytes: Arc<AtomicU64>,
    task: JoinHandle<()>,
}

impl Proxy {
    /// A proxy for the server at `target` (host and port).
    pub async fn to(target: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (weather, seen) = watch::channel(Weather::Passing(Duration::ZERO));
        let carried_bytes = Arc::new(AtomicU64::new(0));
        let link = Link {
            target: target.to_owned(),
            weather: seen,
            carried_bytes: Arc::clone(&carried_bytes),
        };
        let task = tokio::spawn(link.serve(listener));
        Self {
            address,
            weather,
            carried_bytes,
            task,
        }
    }

    /// The port to connect to.
    pub fn port(&self) -> u16 {
        self.address.port()
    }

    /// How many bytes have passed, both ways.
    pub fn carried_bytes(&self) -> u64 {
        self.carried_bytes.load(Ordering::Relaxed)
    }

    /// Bytes pass, each chunk `delay` later than it came.
    pub fn pass(&self, delay: Duration) {
        self.weather.send_replace(Weather::Passing(delay));
    }

    /// Bytes are held back until `pass`; nobody is told.
    pub fn freeze(&self) {
        self.weather.send_replace(Weather::Frozen);
    }

    /// Every connection ends, and none is made until `pass`.
    pub fn cut(&self) {
        self.weather.send_replace(Weather::Cut);
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.task.abort();
    }
}

#[derive(Clone)]
struct Link {
    target: String,
    weather: watch::Receiver<Weather>,
    carried_bytes: Arc<AtomicU64>,
}

impl Link {
    async fn serve(self, listener: TcpListener) {
        let mut connections = JoinSet::new();
        loop {
            tokio::select! {
                accepted = listener.accept() => {
                    let Ok((client, _)) = accepted else { return };
                    if *self.weather.borrow() != Weather::Cut {
                        connections.spawn(self.clone().carry(client));
                    }
                }
                Some(_) = connections.join_next() => {}
            }
        }
    }

    async fn carry(self, client: TcpStream) {
        let Ok(server) = TcpStream::connect(&self.target).await else {
            return;
        };
        drop((client.set_nodelay(true), server.set_nodelay(true)));
        let (from_client, to_client) = client.into_split();
        let (from_server, to_server) = server.into_split();
        let mut weather = self.weather.clone();
        tokio::select! {
            () = self.clone().pump(from_client, to_server) => {}
            () = self.clone().pump(from_server, to_client) => {}
            _ = weather.wait_for(|now| *now == Weather::Cut) => {}
        }
    }

    /// Carries one direction until its end; the end of one direction ends the connection. What is
    /// late does not hold up what comes behind it: any number of bytes are on the way at a time.
    async fn pump(self, mut from: OwnedReadHalf, to: OwnedWriteHalf) {
        let (came, coming) = mpsc::channel(CHUNKS_MAX);
        let delivering = self.deliver(coming, to);
        let taking = async move {
            let mut chunk = vec![0; CHUNK_BYTES];
            while let Ok(length @ 1..) = from.read(&mut chunk).await {
                let bytes = chunk[..length].to_vec();
                if came.send((Instant::now(), bytes)).await.is_err() {
                    return;
                }
            }
        };
        tokio::pin!(delivering);
        tokio::select! {
            () = &mut delivering => {}
            () = taking => delivering.await,
        }
    }

    async fn deliver(
        mut self,
        mut coming: mpsc::Receiver<(Instant, Vec<u8>)>,
        mut to: OwnedWriteHalf,
    ) {
        while let Some((came, bytes)) = coming.recv().await {
            let passing = self
                .weather
                .wait_for(|now| matches!(now, Weather::Passing(_)))
                .await;
            let Ok(Weather::Passing(delay)) = passing.map(|now| *now) else {
                return;
            };
            if !delay.is_zero() {
                sleep_until(came + delay).await;
            }
            if to.write_all(&bytes).await.is_err() {
                return;
            }
            let length = bytes.len() as u64;
            self.carried_bytes.fetch_add(length, Ordering::Relaxed);
        }
    }
}
