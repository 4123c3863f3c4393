-- Version 3: how people reach a server. Empty: an earlier lobster's, which does not say.
ALTER TABLE servers ADD COLUMN url TEXT NOT NULL DEFAULT '';
