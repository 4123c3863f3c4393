import { XMLBuilder, XMLParser, XMLValidator } from "fast-xml-parser";
const text = '<?xml version="1.0"?><list at="1"><row id="1">a &amp; b</row><row id="2"><![CDATA[<x>]]></row></list>';
export default () => {
  const read = new XMLParser({ ignoreAttributes: false }).parse(text);
  return [read, new XMLBuilder({ ignoreAttributes: false }).build(read), XMLValidator.validate("<a><b></a>")];
};
