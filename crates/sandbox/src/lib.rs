//! Where does untrusted code run? The process tier, and a probe of what this host really gives.
