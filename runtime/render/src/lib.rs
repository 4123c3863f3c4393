//! Lays out questions as text: for a terminal, a chat or a phone, in as many columns and lines as there are.

pub mod question;
pub mod text;
