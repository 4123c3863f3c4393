"""What bench.py measures: each piece of work, and how each candidate does it."""

import email
import email.policy
import json
import pathlib
import shlex
import shutil
import subprocess

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
STEPS = 10
DIST = REPOSITORY / "guest-steps" / "dist"
GREET = REPOSITORY / "tests" / "guests" / "dist" / "greet.wasm"
INBOX = REPOSITORY / "examples" / "inbox-triage" / "inbox"

# Ten questions to the example's mail, by the tools that are everywhere.
COMMANDS = [
    "grep -il invoice {inbox}/*.eml | wc -l",
    "grep -h '^From:' {inbox}/*.eml | sed 's/.*@//; s/>.*//' | sort | uniq -c | sort -rn | head -5",
    "grep -h '^Subject:' {inbox}/*.eml | cut -c10- | sort -f",
    "cat {inbox}/*.eml | tr -cs 'A-Za-z' '\\n' | tr 'A-Z' 'a-z' | sort | uniq -c | sort -rn | head -20",
    "awk '/^Date:/ {{ print $4, $3 }}' {inbox}/*.eml | sort | uniq -c",
    "wc -c {inbox}/*.eml | sort -rn | head -10",
    "grep -L '^Content-Type:' {inbox}/*.eml | wc -l",
    "sed -n '/^$/,$p' {inbox}/0001*.eml | wc -w",
    "grep -ho '[A-Za-z0-9._-]*@[A-Za-z0-9.-]*' {inbox}/*.eml | sort -u",
    "awk 'FNR == 1 {{ n++ }} END {{ print n, NR }}' {inbox}/*.eml",
]

# Ten questions to the same mail as JSON, asked of each item.
FILTERS = [
    ".from",
    "select(.unread) | .subject",
    'select(.subject | test("invoice|rechnung"; "i")) | {file, subject}',
    '{file, words: (.body | split(" ") | length)}',
    "select(.size > 800) | .file",
    '.from | capture("<(?<mail>[^>]+)>") | .mail',
    "{file, day: .date[0:16]}",
    ".to | length",
    'select(.body | ascii_downcase | contains("please")) | .file',
    ".subject | ascii_upcase",
]

FEW_GATES, MANY_GATES = 1, 5000
LOOP, EARLIER = 2000, 4000
ROUNDS = 10_000


POLICY = REPOSITORY / "tests" / "policy" / "example.toml"


def small_works(place):
    """Name and words of the works by which builds are compared (against.py, counts.py); writes the files they need."""
    (place / "r.txt").write_text("a line\n" * 100, "utf-8")
    native = workflow(place / "native.lobster", *[{"run": "cat r.txt | wc -l"}] * STEPS)
    rounds = [{"run": "seq 50 | paste -sd, | sed 's/.*/[&]/'"},
              {"for_each": "$s0.json", "steps": [{"id": "one", "run": "true"}]}]
    yield "version", ["version"]
    yield "stage", ["run", "--mode", "tool", "exec echo hello"]
    yield "native", native
    yield "policed", [*native, "--policy", str(POLICY)]
    yield "rounds", workflow(place / "rounds.lobster", *rounds)


class Work:
    """One thing to do, and how each candidate does it; no way, no entry.

    `fresh` is run before each call and not measured; `verdict` turns the
    median seconds of the candidates into a line about what they show.
    """

    def __init__(self, name, about, ways, rounds=None, fresh=None, verdict=None):
        self.name, self.about, self.ways = name, about, ways
        self.rounds, self.fresh, self.verdict = rounds, fresh, verdict


def works(ours, incumbent, place, items):
    """Everything that is measured."""
    both = {"lobster": ours, **({"incumbent": incumbent} if incumbent else {})}
    yield Work("version", "start and print the version",
               {**{who: [*command, "version"] for who, command in both.items()}, "sh": ["sh", "-c", "echo 1"]})
    yield Work("stage", "a pipeline of one stage",
               {who: [*command, "run", "--mode", "tool", "exec echo hello"] for who, command in both.items()})
    yield from floor(ours, both, place)
    yield from real_work(ours, both, place)
    yield from streams(ours, both, place, items)
    yield from programs(ours, place)
    yield loop_after_many_steps(ours, place)
    yield many_gates(ours, place)


def workflow(path, *steps):
    """Writes a workflow file; each step is a dictionary."""
    path.write_text(json.dumps({"steps": [{"id": f"s{n}", **step} for n, step in enumerate(steps)]}), "utf-8")
    return ["run", "--mode", "tool", "--file", str(path)]


def floor(ours, both, place):
    """Steps that do nothing: all that is seen is what a step costs."""
    run = workflow(place / "native.lobster", *[{"run": "true"}] * STEPS)
    shell = "; ".join(["sh -c true"] * STEPS)
    yield Work("native", f"{STEPS} steps, each a shell that does nothing",
               {**{who: [*command, *run] for who, command in both.items()}, "sh": ["sh", "-c", shell]})
    component = DIST / "categorize-mail.wasm"
    if not component.is_file():
        print(f"skipped: component ({component} is not there)")
        return
    inbox = place / "inbox"
    inbox.mkdir()
    (inbox / "1.eml").write_text(
        "From: Bo <bo@example.org>\nTo: ada@example.com\nSubject: Plan\n\nCould you look at it?\n", "utf-8")
    step = {"component": str(component), "cache": False,
            "grants": {"read": [{"from": str(inbox), "to": "/mail"}]}}
    yield Work("component", f"{STEPS} component steps over one mail, compiled code cached, outcomes not; sh as above",
               {"lobster": [*ours, *workflow(place / "component.lobster", *[step] * STEPS)],
                "sh": ["sh", "-c", shell]})


def real_work(ours, both, place):
    """Steps that do what people do with mail."""
    commands = [command.format(inbox=shlex.quote(str(INBOX))) for command in COMMANDS]
    run = workflow(place / "mail.lobster", *[{"run": command} for command in commands])
    script = "\n".join(f"sh -c {shlex.quote(command)}" for command in commands)
    print(f"tools: {versions('sh', 'grep', 'sed', 'sort', 'awk', 'jq')}")
    yield Work("mail", f"{STEPS} lines of grep, sed, sort, awk … over the example's mail",
               {**{who: [*command, *run] for who, command in both.items()}, "sh": ["sh", "-c", script]})

    jq = DIST / "jq.wasm"
    if not shutil.which("jq") or not jq.is_file():
        print("skipped: jq (it takes jq, and the component of that name)")
        return
    mails = place / "mails.json"
    mails.write_text(json.dumps(list(example_mail())), "utf-8")
    lines = [f"jq -c {shlex.quote('.[] | ' + text)} {shlex.quote(str(mails))}" for text in FILTERS]
    native = workflow(place / "jq-native.lobster", *[{"run": line} for line in lines])
    steps = [{"component": str(jq), "cache": False, "args": {"filter": text}, "stdin": "$s0.json"} for text in FILTERS]
    components = workflow(place / "jq.lobster", {"run": f"cat {shlex.quote(str(mails))}"}, *steps)
    yield Work("jq", f"{STEPS} jq filters over the example's mail as JSON; lobster: the jq component",
               {"lobster": [*ours, *components], "native": [*ours, *native], "sh": ["sh", "-c", "\n".join(lines)]})


def streams(ours, both, place, items):
    """Many items through pipelines."""
    data = place / "items.json"
    with data.open("w", encoding="utf-8") as out:
        out.write("[")
        for n in range(items):
            out.write(("," if n else "") + '{"id":%d,"unread":%s,"from":"a%d@example.com","n":%d}'
                      % (n, "true" if n % 2 else "false", n % 1000, n * 7 % 1000))
        out.write("]")
    pipeline = f"exec --json --shell 'cat {data}' | where unread=true | pick id,from | head --n 10"
    yield Work("items", f"{items:,} JSON items through where, pick and head",
               {who: [*command, "run", "--mode", "tool", pipeline] for who, command in both.items()}, rounds=3)
    pipeline = f"exec --json --shell 'cat {data}' | where unread=true | sort --key n | head --n 10"
    ways = {"lobster": [*ours, "run", "--mode", "tool", pipeline]}
    if shutil.which("jq"):
        ways["jq"] = ["sh", "-c", f"cat {data} | jq -c 'map(select(.unread == true)) | sort_by(.n) | .[:10]'"]
    yield Work("sort", f"{items:,} JSON items through where, sort and head", ways, rounds=2)


def programs(ours, place):
    """Components, compiled before: the first of a process, and one in each round of a loop."""
    letter, table = DIST / "render.wasm", DIST / "csv.wasm"
    if not letter.is_file() or not table.is_file():
        print(f"skipped: cold, rounds (no components in {DIST})")
        return
    steps = {
        "lobster": {"component": str(letter), "cache": False, "stdin": "$item.json",
                    "args": {"template": "Dear {{ item.name }}, you have {{ item.mails }} mails.", "each": True}},
        "csv": {"component": str(table), "cache": False, "stdin": "$item.stdout"},
        "greet": {"component": str(GREET), "cache": False, "stdin": "$item.json"},
    }
    one = {**steps["csv"], "stdin": "name,mails\nAda,3\n"}
    yield Work("cold", "process start to result of one step: a Rust component (lobster), a line of JavaScript (js)",
               {"lobster": [*ours, *workflow(place / "cold.lobster", one)],
                "js": [*ours, *workflow(place / "cold-js.lobster", {"js": "[1, 2, 3].map(n => n * 2)", "cache": False})]})

    items = {
        "lobster": [{"name": f"Ada {n}", "mails": n} for n in range(ROUNDS)],
        "csv": [f"name,mails\nAda {n},{n}\n" for n in range(ROUNDS)],
        "greet": [{"name": f"Ada {n}"} for n in range(ROUNDS)],
    }
    ways = {}
    for who, step in steps.items():
        data = place / f"rounds-{who}.json"
        data.write_text(json.dumps(items[who]), "utf-8")
        listing = {"id": "items", "run": f"cat {shlex.quote(str(data))}"}
        loop = {"for_each": "$items.json", "steps": [{"id": "one", **step}]}
        ways[who] = [*ours, *workflow(place / f"rounds-{who}.lobster", listing, loop)]

    def verdict(seconds):
        rates = (f"{ROUNDS / took:,.0f} a second ({who})" for who, took in seconds.items())
        return "rounds, from process start to envelope: " + "; ".join(rates)

    yield Work("rounds", f"for_each over {ROUNDS:,} items: the render component writes a line (lobster), csv reads a table (csv), "
               "the step that `step new --lang rust` makes (greet)",
               ways, 3, verdict=verdict)


def loop_after_many_steps(ours, place):
    """A loop must not pay for what came before it."""
    loop = {"for_each": "$items.json", "steps": [{"id": "one", "pipeline": "head --n 1"}]}
    data = place / "loop.json"
    data.write_text(json.dumps(list(range(LOOP))), "utf-8")
    listing = {"id": "items", "pipeline": f"exec --json --shell 'cat {data}'"}
    earlier = [{"pipeline": "head --n 1"}] * EARLIER
    alone = workflow(place / "loop.lobster", listing, loop)
    before = workflow(place / "earlier.lobster", *earlier, listing)
    both = workflow(place / "both.lobster", *earlier, listing, loop)

    def verdict(seconds):
        ratio = (seconds["both"] - seconds["earlier"]) / seconds["lobster"]
        return f"the loop after {EARLIER:,} steps takes {ratio:.2f}x of the loop alone (less what the steps take)"

    return Work("loop", f"for_each over {LOOP:,} items, alone (lobster), after {EARLIER:,} steps (both), and those steps",
                {"lobster": [*ours, *alone], "earlier": [*ours, *before], "both": [*ours, *both]}, 3, verdict=verdict)


def many_gates(ours, place):
    """An answer must not pay for the questions that others have not answered yet."""
    ask = workflow(place / "ask.lobster", {"pipeline": "approve --prompt 'Go on?'"}, {"run": "echo done"})
    branches = [{"id": f"b{n}", "pipeline": "approve --prompt 'Go on?'"} for n in range(100)]
    crowd = workflow(place / "crowd.lobster", {"parallel": {"branches": branches}})

    def fresh(who, call):
        state = place / "state" / who
        if who == "many" and not (state / "filled").exists():
            for _ in range(MANY_GATES // len(branches)):
                call([*ours, *crowd])
            (state / "filled").write_text("")
        token = json.loads(call([*ours, *ask]))["requiresApproval"]["resumeToken"]
        return ["--token", token, "--approve", "yes"]

    def verdict(seconds):
        return f"a resume among {MANY_GATES:,} gates takes {seconds['many'] / seconds['lobster']:.2f}x of one with one"

    resume = [*ours, "resume"]
    return Work("gates", f"resume with 1 gate (lobster) and with {MANY_GATES:,} that wait",
                {"lobster": resume, "many": resume}, fresh=fresh, verdict=verdict)


def example_mail():
    """The example's mail as a program would list it."""
    for number, path in enumerate(sorted(INBOX.glob("*.eml"))):
        data = path.read_bytes()
        message = email.message_from_bytes(data, policy=email.policy.compat32)
        body = message.get_payload(decode=True) or b""
        yield {"file": path.name, "from": str(message["From"]), "to": str(message["To"]).split(","),
               "subject": str(message["Subject"]), "date": str(message["Date"]), "unread": number % 2 == 0,
               "size": len(data), "body": body.decode("utf-8", "replace")}


def versions(*tools):
    """What is there of these tools."""
    said = []
    for tool in tools:
        path = shutil.which(tool)
        if path is None:
            said.append(f"no {tool}")
            continue
        name = pathlib.Path(path).resolve().name
        asked = subprocess.run([path, "--version"], capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
        first = (asked.stdout.splitlines() or [""])[0]
        said.append(first if asked.returncode == 0 and first else name)
    return "; ".join(said)
