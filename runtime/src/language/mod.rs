//! Source text to [`Plan`](plan::Plan). Pure: nothing here reads a clock, an
//! environment or a file; sources come in as text, and sub-workflows through a
//! loader that the caller gives.
