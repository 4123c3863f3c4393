import iconv from "iconv-lite";
export default () => [iconv.decode(Uint8Array.from([0x93, 0xfa, 0x96, 0x7b]), "shift_jis"), iconv.decode(Uint8Array.from([0xe4, 0x80]), "win1252"), [...iconv.encode("Grüße €", "iso-8859-15")], iconv.encodingExists("koi8-r")];
