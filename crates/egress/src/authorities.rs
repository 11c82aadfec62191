//! Certificates of authorities that the operator trusts besides the public ones: a file, or the system's store.

use std::path::Path;

use tokio_rustls::rustls::RootCertStore;
use tokio_rustls::rustls::pki_types::CertificateDer;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;

/// Where systems keep the authorities that they trust, as one file.
const SYSTEM: [&str; 5] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
];

/// The certificates (DER) in a PEM file. Each must be usable.
pub fn authorities(path: &Path) -> Result<Vec<Vec<u8>>, String> {
    let all = read(path)?;
    let mut store = RootCertStore::empty();
    for (at, one) in all.iter().enumerate() {
        let added = store.add(CertificateDer::from(one.clone()));
        added.map_err(|error| format!("certificate {} in `{}`: {error}", at + 1, path.display()))?;
    }
    Ok(all)
}

/// The system's authorities. Those that can't be used are left out, as everywhere.
pub fn system_authorities() -> Result<Vec<Vec<u8>>, String> {
    let path = SYSTEM.iter().map(Path::new).find(|path| path.is_file());
    let path = path.ok_or_else(|| format!("the system has no certificates at {}", SYSTEM.join(", ")))?;
    let is_usable = |one: &Vec<u8>| RootCertStore::empty().add(CertificateDer::from(one.clone())).is_ok();
    Ok(read(path)?.into_iter().filter(is_usable).collect())
}

fn read(path: &Path) -> Result<Vec<Vec<u8>>, String> {
    let fail =
        |why: &dyn std::fmt::Display| format!("`{}` can't be read as certificates: {why}", path.display());
    let text = std::fs::read(path).map_err(|error| fail(&error))?;
    let all: Vec<Vec<u8>> = CertificateDer::pem_slice_iter(&text)
        .map(|one| one.map(|one| one.to_vec()))
        .collect::<Result<_, _>>()
        .map_err(|error| fail(&error))?;
    if all.is_empty() { Err(fail(&"it has none")) } else { Ok(all) }
}
