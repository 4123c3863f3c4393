//! The base of all other crates: digests, JSON as ECMAScript writes it, JSON Schema, cancellation, path patterns,
//! quantities, clipped texts, error codes, settings, and the notation for places in a run. It contains no features of
//! lobster itself.

pub mod address;
pub mod budget;
pub mod cancel;
pub mod code;
pub mod config;
pub mod credential;
pub mod digest;
pub mod fault;
pub mod file_digests;
pub mod file_identity;
pub mod file_tree;
pub mod glob;
pub mod json;
pub mod locked_directory;
pub mod own_program;
pub mod percent;
pub mod place;
pub mod program;
pub mod quantity;
pub mod regular_file;
pub mod request_error;
pub mod schema;
pub mod setting;
pub mod sync;
pub mod text;
pub mod ticks;
pub mod variable_name;
pub mod visible;
pub mod whole_sync;
