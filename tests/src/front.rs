//! An HTTP server in front of the Schema Registry, that answers some requests itself.
//!
//! What it does not refuse reaches the registry and comes back unchanged. Each connection carries
//! one request, so that a change of mind is in force for the next request.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{JoinHandle, JoinSet};

use crate::wait::{PATIENCE, until};

/// Which requests are refused, by parts of method and path, and with which status.
#[derive(Clone, Copy, Debug)]
struct Refusal {
    method: &'static str,
    path: &'static str,
    status: u16,
}

/// A front on a port of its own.
pub struct Front {
    /// What to put in the place of the registry's URL.
    pub url: String,
    refusal: Arc<Mutex<Option<Refusal>>>,
    refused: Arc<AtomicUsize>,
    task: JoinHandle<()>,
}

impl Front {
    /// A front for the server of a URL.
    pub async fn of(url: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let authority = url.strip_prefix("http://").expect("plain HTTP");
        let (target, path) = authority.split_once('/').unwrap_or((authority, ""));
        let refusal = Arc::new(Mutex::new(None));
        let refused = Arc::new(AtomicUsize::new(0));
        let door = Door {
            target: target.to_owned(),
            refusal: Arc::clone(&refusal),
            refused: Arc::clone(&refused),
        };
        Self {
            url: format!("http://127.0.0.1:{port}/{path}"),
            refusal,
            refused,
            task: tokio::spawn(door.serve(listener)),
        }
    }

    /// From now on requests of `method` whose path contains `path` are answered with `status`.
    pub fn refuse(&self, method: &'static str, path: &'static str, status: u16) {
        self.refused.store(0, Ordering::Relaxed);
        *self.refusal.lock().unwrap() = Some(Refusal {
            method,
            path,
            status,
        });
    }

    /// From now on everything passes.
    pub fn pass(&self) {
        *self.refusal.lock().unwrap() = None;
    }

    /// Waits until so many requests were refused since `refuse`.
    pub async fn refused(&self, requests: usize) {
        until("requests are refused", PATIENCE, async || {
            (self.refused.load(Ordering::Relaxed) >= requests).then_some(())
        })
        .await;
    }
}

impl Drop for Front {
    fn drop(&mut self) {
        self.task.abort();
    }
}

#[derive(Clone)]
struct Door {
    target: String,
    refusal: Arc<Mutex<Option<Refusal>>>,
    refused: Arc<AtomicUsize>,
}

impl Door {
    async fn serve(self, listener: TcpListener) {
        let mut connections = JoinSet::new();
        loop {
            tokio::select! {
                accepted = listener.accept() => {
                    let Ok((client, _)) = accepted else { return };
                    connections.spawn(self.clone().answer(client));
                }
                Some(_) = connections.join_next() => {}
            }
        }
    }

    /// Answers one request; a connection that breaks is its client's affair.
    async fn answer(self, mut client: TcpStream) {
        let Some((head, body)) = read_request(&mut client).await else {
            return;
        };
        let answer = match self.refusal_of(&head) {
            Some(status) => {
                self.refused.fetch_add(1, Ordering::Relaxed);
                let body = format!(r#"{{"error_code":{status},"message":"refused by the test"}}"#);
                let length = body.len();
                format!("HTTP/1.1 {status} Refused\r\ncontent-length: {length}\r\n\r\n{body}")
                    .into_bytes()
            }
            None => match self.ask(&head, &body).await {
                Ok(answer) => answer,
                Err(_) => return,
            },
        };
        drop(client.write_all(&closing(&answer)).await);
        drop(client.shutdown().await);
    }

    fn refusal_of(&self, head: &str) -> Option<u16> {
        let refusal = (*self.refusal.lock().unwrap())?;
        let (method, path) = head.split_once(' ')?;
        let path = path.split(' ').next()?;
        (method.contains(refusal.method) && path.contains(refusal.path)).then_some(refusal.status)
    }

    /// The registry's whole answer.
    async fn ask(&self, head: &str, body: &[u8]) -> std::io::Result<Vec<u8>> {
        let mut server = TcpStream::connect(&self.target).await?;
        server.write_all(&closing(head.as_bytes())).await?;
        server.write_all(body).await?;
        let mut answer = Vec::new();
        server.read_to_end(&mut answer).await?;
        Ok(answer)
    }
}

/// A request's head, with the empty line, and its body.
async fn read_request(client: &mut TcpStream) -> Option<(String, Vec<u8>)> {
    const EMPTY_LINE: &[u8] = b"\r\n\r\n";
    let mut read = Vec::new();
    loop {
        if client.read_buf(&mut read).await.ok()? == 0 {
            return None;
        }
        let at = read
            .windows(EMPTY_LINE.len())
            .position(|bytes| bytes == EMPTY_LINE);
        let Some(at) = at else { continue };
        let mut body = read.split_off(at + EMPTY_LINE.len());
        let head = String::from_utf8(read).ok()?;
        let length = head.lines().find_map(|line| {
            let (name, value) = line.split_once(':')?;
            name.eq_ignore_ascii_case("content-length")
                .then(|| value.trim().parse::<usize>())
        });
        let length = length.and_then(Result::ok).unwrap_or(0);
        while body.len() < length {
            if client.read_buf(&mut body).await.ok()? == 0 {
                return None;
            }
        }
        return Some((head, body));
    }
}

/// A message whose sender closes the connection behind it.
fn closing(message: &[u8]) -> Vec<u8> {
    let end = message
        .iter()
        .position(|byte| *byte == b'\n')
        .map_or(0, |at| at + 1);
    [&message[..end], b"connection: close\r\n", &message[end..]].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_says_that_its_sender_closes() {
        let check = |message: &str, expected: &str| {
            assert_eq!(
                closing(message.as_bytes()),
                expected.as_bytes(),
                "{message}"
            );
        };
        check(
            "GET / HTTP/1.1\r\nhost: a\r\n\r\nbody",
            "GET / HTTP/1.1\r\nconnection: close\r\nhost: a\r\n\r\nbody",
        );
    }
}
