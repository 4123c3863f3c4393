import Papa from "papaparse";
export default () => {
  const { data, meta } = Papa.parse('name,n\n"a ""q""",1\nü,2\n', { header: true, dynamicTyping: true, skipEmptyLines: true });
  return [data, meta.fields, Papa.unparse([{ a: 1, b: 'x,"y"' }])];
};
