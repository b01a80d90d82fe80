//! A TCP proxy in front of the subscriber or the registry: it can hold everything back, and say
//! something that the server never said.

use std::net::SocketAddr;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{broadcast, watch};
use tokio::task::{JoinHandle, JoinSet};

/// A proxy on a port of its own.
pub(crate) struct Proxy {
    address: SocketAddr,
    frozen: watch::Sender<bool>,
    said: broadcast::Sender<Vec<u8>>,
    task: JoinHandle<()>,
}

impl Proxy {
    /// A proxy for the server of this URL.
    pub(crate) async fn to(url: &str) -> Self {
        let target = host_and_port(url).to_owned();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (frozen, frozen_seen) = watch::channel(false);
        let (said, _) = broadcast::channel(16);
        let to_say = said.clone();
        let task = tokio::spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((client, _)) = listener.accept().await {
                let server = TcpStream::connect(&target).await.unwrap();
                let (frozen, heard) = (frozen_seen.clone(), to_say.subscribe());
                connections.spawn(carry(client, server, frozen, heard));
            }
        });
        Self {
            address,
            frozen,
            said,
            task,
        }
    }

    /// The same URL by way of the proxy, which has to understand what passes.
    pub(crate) fn url(&self, url: &str) -> String {
        format!("{}?sslmode=disable", self.address_in(url))
    }

    /// The URL with the proxy's address.
    pub(crate) fn address_in(&self, url: &str) -> String {
        url.replace(host_and_port(url), &self.address.to_string())
    }

    /// Nothing passes, and nobody is told.
    pub(crate) fn freeze(&self) {
        self.frozen.send_replace(true);
    }

    /// What was held back passes, and all that follows.
    pub(crate) fn thaw(&self) {
        self.frozen.send_replace(false);
    }

    /// Says this to every worker, as if the server did.
    pub(crate) fn say_to_workers(&self, message: &[u8]) {
        self.said.send(message.to_vec()).unwrap();
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.task.abort();
    }
}

fn host_and_port(url: &str) -> &str {
    let (_, rest) = url.split_once("//").unwrap();
    let (authority, _) = rest.split_once('/').unwrap();
    authority.rsplit('@').next().unwrap()
}

async fn carry(
    mut client: TcpStream,
    mut server: TcpStream,
    mut frozen: watch::Receiver<bool>,
    mut said: broadcast::Receiver<Vec<u8>>,
) {
    let (mut asked, mut answered) = (vec![0; 65_536], vec![0; 65_536]);
    let mut is_worker = false;
    loop {
        let passed = tokio::select! {
            Ok(length) = client.read(&mut asked) => {
                let bytes = &asked[..length];
                is_worker |= bytes.windows(8).any(|word| word == b" worker ");
                frozen.wait_for(|frozen| !frozen).await.is_ok()
                    && length > 0
                    && server.write_all(bytes).await.is_ok()
            }
            Ok(length) = server.read(&mut answered) => {
                frozen.wait_for(|frozen| !frozen).await.is_ok()
                    && length > 0
                    && client.write_all(&answered[..length]).await.is_ok()
            }
            Ok(message) = said.recv(), if is_worker => client.write_all(&message).await.is_ok(),
            else => false,
        };
        if !passed {
            return;
        }
    }
}
