//! The session's certificate authority. It vouches for the broker, only inside sandboxes, where policy inspects a tunnel.
//!
//! Its key is created on first use, never written to a file, and gone with the process. The certificate is appended to the public ones in a
//! file that the sandbox mounts. Outgoing connections don't change: the real server must present a certificate by a public authority.

use std::collections::HashMap;
use std::io::{Read as _, Write as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DistinguishedName, DnType, ExtendedKeyUsagePurpose,
    IsCa, KeyPair, KeyUsagePurpose,
};
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};

/// Maximum number of cached host certificates.
const HOSTS_MAX: usize = 256;
/// System bundles of public certificate authorities.
const SYSTEM_BUNDLES: &[&str] =
    &["/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/cert.pem"];
const BUNDLE_BYTES_MAX: u64 = 4 << 20;
/// Prefix of the file names.
const PREFIX: &str = "certificates-";
const SUFFIX: &str = ".pem";

/// Vouches for the broker.
pub(crate) struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
    key: KeyPair,
    hosts: Mutex<HashMap<String, Arc<ServerConfig>>>,
    /// The file that the sandbox mounts; removed on drop.
    file: tempfile::NamedTempFile,
}

impl std::fmt::Debug for Authority {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Authority").field("file", &self.file.path()).finish_non_exhaustive()
    }
}

/// Why the authority can't be created.
#[derive(Debug, thiserror::Error)]
pub(crate) enum AuthorityError {
    #[error("can't create a certificate: {0}")]
    Certificate(#[from] rcgen::Error),
    #[error("the certificates can't be written: {0}")]
    File(#[from] std::io::Error),
    #[error("can't set up TLS: {0}")]
    Tls(#[from] tokio_rustls::rustls::Error),
}

impl Authority {
    /// Creates an authority, with its certificate file in this folder.
    pub(crate) fn new(folder: &Path) -> Result<Self, AuthorityError> {
        let mut params = CertificateParams::new(Vec::new())?;
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
        params.distinguished_name = named("Regent broker of this session");
        let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate()?)?;
        sweep(folder);
        let mut file = locked(folder)?;
        file.write_all(&system_bundle())?;
        file.write_all(pem(issuer.der()).as_bytes())?;
        file.flush()?;
        Ok(Self { issuer, key: KeyPair::generate()?, hosts: Mutex::default(), file })
    }

    /// The certificate file.
    pub(crate) fn file(&self) -> &Path {
        self.file.path()
    }

    /// The TLS identity of this host, for a sandbox.
    pub(crate) fn config_for(&self, host: &str) -> Result<Arc<ServerConfig>, AuthorityError> {
        if let Some(known) = self.hosts.lock().unwrap_or_else(PoisonError::into_inner).get(host) {
            return Ok(Arc::clone(known));
        }
        let mut params = CertificateParams::new(vec![host.to_owned()])?;
        params.distinguished_name = named("Regent broker");
        params.use_authority_key_identifier_extension = true;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        let certificate = params.signed_by(&self.key, &self.issuer)?;
        let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(self.key.serialize_der()));
        let mut config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_single_cert(vec![certificate.der().clone()], key)?;
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        let config = Arc::new(config);
        let mut hosts = self.hosts.lock().unwrap_or_else(PoisonError::into_inner);
        if hosts.len() >= HOSTS_MAX {
            hosts.clear();
        }
        hosts.insert(host.to_owned(), Arc::clone(&config));
        Ok(config)
    }
}

/// A new certificate file, locked for the life of this process.
fn locked(folder: &Path) -> std::io::Result<tempfile::NamedTempFile> {
    loop {
        let file = tempfile::Builder::new().prefix(PREFIX).suffix(SUFFIX).tempfile_in(folder)?;
        file.as_file().lock()?;
        // Another session may have removed it before it was locked.
        if file.as_file().metadata()?.nlink() > 0 {
            return Ok(file);
        }
    }
}

/// Removes files of killed sessions: a running session holds its lock.
fn sweep(folder: &Path) {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    for entry in entries {
        let is_ours =
            entry.file_name().to_str().is_some_and(|name| name.starts_with(PREFIX) && name.ends_with(SUFFIX));
        let is_file = entry.file_type().is_ok_and(|kind| kind.is_file());
        if is_ours
            && is_file
            && let Ok(file) = std::fs::File::open(entry.path())
            && file.try_lock().is_ok()
        {
            // On failure, the next session removes it.
            std::fs::remove_file(entry.path()).ok();
        }
    }
}

fn named(text: &str) -> DistinguishedName {
    let mut name = DistinguishedName::new();
    name.push(DnType::CommonName, text);
    name
}

/// The system's certificates, so that uninspected tunnels work as usual.
fn system_bundle() -> Vec<u8> {
    for path in SYSTEM_BUNDLES {
        let mut bundle = Vec::new();
        if let Ok(file) = std::fs::File::open(path)
            && file.take(BUNDLE_BYTES_MAX).read_to_end(&mut bundle).is_ok()
        {
            bundle.push(b'\n');
            return bundle;
        }
    }
    Vec::new()
}

fn pem(der: &[u8]) -> String {
    let text = STANDARD.encode(der);
    let mut lines = String::from("-----BEGIN CERTIFICATE-----\n");
    for (at, letter) in text.chars().enumerate() {
        if at > 0 && at % 64 == 0 {
            lines.push('\n');
        }
        lines.push(letter);
    }
    lines.push_str("\n-----END CERTIFICATE-----\n");
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_authority_signs_names_and_addresses_and_removes_its_file() {
        let folder = tempfile::tempdir().unwrap();
        let authority = Authority::new(folder.path()).unwrap();
        for host in ["example.com", "127.0.0.1", "::1"] {
            let one = authority.config_for(host).unwrap();
            assert!(Arc::ptr_eq(&one, &authority.config_for(host).unwrap()));
        }
        let file = authority.file().to_owned();
        let text = std::fs::read_to_string(&file).unwrap();
        assert!(text.ends_with("-----END CERTIFICATE-----\n") && !text.contains("PRIVATE"));
        drop(authority);
        assert!(!file.exists());
    }

    #[test]
    fn f9_sweeps_files_of_killed_sessions_only() {
        let folder = tempfile::tempdir().unwrap();
        let living = Authority::new(folder.path()).unwrap();
        let left = folder.path().join("certificates-abc123.pem");
        let others = folder.path().join("kernel.sock");
        std::fs::write(&left, "of a session that was killed").unwrap();
        std::fs::write(&others, "").unwrap();
        let next = Authority::new(folder.path()).unwrap();
        assert!(!left.exists(), "swept by the next session");
        assert!(living.file().exists() && next.file().exists() && others.exists());
        let names = std::fs::read_dir(folder.path()).unwrap().count();
        assert_eq!(names, 3);
        drop((living, next));
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn each_session_has_its_own_authority() {
        let folder = tempfile::tempdir().unwrap();
        let (one, two) = (Authority::new(folder.path()).unwrap(), Authority::new(folder.path()).unwrap());
        assert_ne!(one.issuer.der(), two.issuer.der());
    }
}
