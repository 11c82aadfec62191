//! What happened? One append-only, hash-linked, signed log.
