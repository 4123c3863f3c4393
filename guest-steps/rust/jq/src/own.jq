# What the interpreter has not, or has otherwise than jq. A definition here
# hides the interpreter's of the same name.

def toarray: if isarray then . else [.] end;
def isvalid(f): try (f | true) catch false;

# Paths
def delpaths($paths): delete_paths($paths);
def del(f): delpaths([path(f)]);
def leaf_paths: paths(scalars);
def pick(f): . as $top | reduce path(f) as $p (null; setpath($p; $top | getpath($p)));
def tostream:
  path(def r: (.[]? | r), .; r) as $p | getpath($p) |
  reduce path(.[]?) as $q ([$p, .]; [$p + $q]);
def fromstream(f):
  {x: null, e: false} as $init |
  foreach f as $i ($init;
    (if .e then $init else . end) |
    if $i | length == 2
    then setpath(["e"]; $i[0] | length == 0) | setpath(["x"] + $i[0]; $i[1])
    else setpath(["e"]; $i[0] | length == 1) end;
    if .e then .x else empty end);
def truncate_stream(f):
  . as $n | null | f | if .[0] | length > $n then setpath([0]; .[0][$n:]) else empty end;

# Lists
def nth($n; g): first(skip($n; g));
def join($s):
  def text: if isstring then . elif . == null then "" elif isboolean or isnumber then tojson
    else error("cannot join with \(tojson)") end;
  reduce .[] as $x (null; (if . == null then "" else . + $s end) + ($x | text)) // "";
def flatten($depth): [.[] | if isarray and $depth > 0 then flatten($depth - 1)[] else . end];
def flatten: [.[] | if isarray then flatten[] else . end];
def transpose: [range([.[] | length] | max // 0) as $i | [.[][$i]]];
def IN(s): any(s == .; .);
def IN(source; s): any(source == s; .);
def INDEX(stream; f): reduce stream as $row ({}; .[$row | f | tostring] = $row);
def INDEX(f): INDEX(.[]; f);

# Entries
def from_entries:
  def name: if .key != null then .key elif .k != null then .k elif .name != null then .name
    elif .Name != null then .Name elif .Key != null then .Key else .K end |
    if isstring then . else tojson end;
  def content: if has("value") then .value elif has("v") then .v else .Value end;
  reduce .[] as $x ({}; . + {($x | name): ($x | content)});
def with_entries(f): to_entries | map(f) | from_entries;

# Text
def ltrimstr($x): if isstring and ($x | isstring) and startswith($x) then .[($x | length):] else . end;
def rtrimstr($x): if isstring and ($x | isstring) and endswith($x) then .[:length - ($x | length)] else . end;
def trimstr($x): ltrimstr($x) | rtrimstr($x);
def @csv: csv_row;
def @tsv: tsv_row;

# Regular expressions
def capture_of_match: reduce (.captures[] | select(.name)) as $c ({}; . + {($c.name): $c.string});
def   match(re; flags): regex_matches(re; flags)[];
def    test(re; flags): regex_matches(re; flags) != [];
def capture(re; flags): match(re; flags) | capture_of_match;
def    scan(re; flags): match(re; "g" + flags) | if .captures == [] then .string else [.captures[].string] end;
def  split (re; flags): [regex_pieces(re; "g" + flags)[] | strings];
def  splits(re; flags): split(re; flags)[];
def sub(re; f; flags):
  def handle: if isobject then capture_of_match | f else . end;
  reduce regex_pieces(re; flags)[] as $x (""; . + ($x | handle));
def gsub(re; f; flags): sub(re; f; "g" + flags);
def   match(re): match(re; null);
def    test(re): test(re; null);
def capture(re): capture(re; null);
def    scan(re): scan(re; null);
def  splits(re): splits(re; null);
def  sub(re; f): sub(re; f; null);
def gsub(re; f): sub(re; f; "g");
