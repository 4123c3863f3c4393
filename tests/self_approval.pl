# What a step tries that wants a yes to a question: prints a line for each way, and how that went.
use strict;
use warnings;
use IO::Socket::INET;
use IO::Socket::UNIX;

my ($port, $gate, $digest, $run, $lobster, $state, $home, $pid, $proxy) = @ARGV;
$SIG{ALRM} = sub { die "late\n" };
$SIG{PIPE} = 'IGNORE';

# Sends bytes, to the port or another place, and gives the status of the answer, or 0.
sub status_of {
    my ($request, $socket) = @_;
    my $status = 0;
    eval {
        alarm 5;
        $socket //= IO::Socket::INET->new(PeerAddr => '127.0.0.1', PeerPort => $port, Proto => 'tcp') or die "no connection\n";
        print $socket $request;
        $socket->flush;
        my $line = <$socket> // '';
        ($status) = $line =~ m{^HTTP/1\.\d (\d+)};
        alarm 0;
    };
    alarm 0;
    return $status // 0;
}

sub request {
    my ($method, $path, $headers, $body) = @_;
    my $host = grep({ /^host:/i } @$headers) ? '' : "Host: 127.0.0.1:$port\r\n";
    my $head = join '', map { "$_\r\n" } @$headers;
    return "$method $path HTTP/1.1\r\n$host${head}Content-Type: application/json\r\nContent-Length: " . length($body)
        . "\r\nConnection: close\r\n\r\n$body";
}

sub way { my ($name, $how) = @_; print "WAY $name: $how\n"; }

print "REACHED ", status_of(request('GET', '/healthz', [], '')), "\n";

# Who it says it is, without being it.
my %claims = (
    'nobody' => [],
    'an empty token' => ['Authorization: Bearer '],
    'the gate as a token' => ["Authorization: Bearer $gate"],
    'the run as a token' => ["Authorization: Bearer $run"],
    'the digest as a token' => ["Authorization: Bearer $digest"],
    'a guessed token' => ['Authorization: Bearer lob_' . 'A' x 43],
    'a wildcard' => ['Authorization: Bearer %'],
    'a quote' => ["Authorization: Bearer ' OR 1=1 --"],
    'two tokens' => ['Authorization: Bearer a', 'Authorization: Bearer b'],
    'basic admin' => ['Authorization: Basic YWRtaW46YWRtaW4='],
    'a made-up session' => ['Cookie: lobster_session=' . 'A' x 43, 'Sec-Fetch-Site: same-origin'],
    'two sessions' => ['Cookie: lobster_session=a; lobster_session=b', 'Sec-Fetch-Site: same-origin'],
    'a page of the server' => ["Origin: http://127.0.0.1:$port", 'Sec-Fetch-Site: same-origin'],
    'a proxy that names a user' => ['X-Forwarded-User: admin', 'X-Remote-User: admin', 'Remote-User: admin'],
    'a request that was forwarded' => ['X-Forwarded-For: 127.0.0.1', 'Forwarded: for=127.0.0.1;by=127.0.0.1'],
    'another method' => ['X-HTTP-Method-Override: GET'],
    'another address' => ['X-Original-URL: /healthz', 'X-Rewrite-URL: /healthz'],
    'another name' => ['Host: localhost.evil.example'],
);
my $yes = "{\"decision\":\"approve\",\"digest\":\"$digest\"}";
my %wants = (
    'answer' => ['POST', "/api/v1/approvals/$gate/answer", $yes],
    'start' => ['POST', '/api/v1/workflows/ask/runs', '{}'],
    'token' => ['POST', '/api/v1/tokens', '{"name":"x","role":"admin","days":1}'],
    'tool' => ['POST', '/mcp', '{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"ask","arguments":{}}}'],
    'read' => ['GET', "/api/v1/approvals/$gate", ''],
);
for my $want (sort keys %wants) {
    for my $claim (sort keys %claims) {
        my ($method, $path, $body) = @{ $wants{$want} };
        way("$want as $claim", status_of(request($method, $path, $claims{$claim}, $body)));
    }
}

# Other roads to the same place.
my $plain = "Host: 127.0.0.1:$port\r\nContent-Type: application/json\r\nContent-Length: " . length($yes);
for my $path ("/api/v1/approvals/$gate/answer?token=admin", "//api/v1/approvals/$gate/answer", "/api/v1/../v1/approvals/$gate/answer",
    "/API/V1/approvals/$gate/answer", "/healthz/../api/v1/approvals/$gate/answer", "/hooks/../api/v1/approvals/$gate/answer",
    "/hooks/%2e%2e/api/v1/approvals/$gate/answer", "/healthz%00/api/v1/approvals/$gate/answer", "/api/v1/approvals/$gate/answer/",
    "/api/v1/approvals/$gate/answer;x", "http://127.0.0.1:$port/api/v1/approvals/$gate/answer")
{
    way("path $path", status_of("POST $path HTTP/1.1\r\n$plain\r\nConnection: close\r\n\r\n$yes"));
}
my $named = request('POST', "/api/v1/approvals/$gate/answer", ['Remote-User: ann', 'Sec-Fetch-Site: same-origin'], $yes);
way('named by the proxy, over the port', status_of($named));
my $to_proxy = eval { IO::Socket::UNIX->new(Peer => $proxy) };
way('named over the socket of the proxy', $to_proxy ? status_of($named, $to_proxy) : 0);
way('no name at all', status_of("POST /api/v1/approvals/$gate/answer HTTP/1.0\r\nContent-Length: 0\r\n\r\n"));
way('GET that answers', status_of(request('GET', "/api/v1/approvals/$gate/answer?decision=approve&digest=$digest", [], '')));
my $inner = request('POST', "/api/v1/approvals/$gate/answer", [], $yes);
my $length = length $inner;
way('a request in a body', status_of("POST /healthz HTTP/1.1\r\nHost: 127.0.0.1:$port\r\nContent-Length: $length\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n$inner"));
way('a login with the gate', status_of(request('POST', '/api/v1/login', [], "{\"link\":\"$gate\"}")));
way('a login with nothing', status_of(request('POST', '/api/v1/login', [], '{"link":""}')));
way('a signed delivery', status_of(request('POST', '/hooks/ask', ['X-Hub-Signature-256: sha256=' . '0' x 64], $yes)));
way('an event', status_of(request('POST', '/api/v1/events', [], '{"name":"go"}')));

# The program itself, as this user. The shell's exit code is what counts.
$ENV{LOBSTER_STATE_DIR} = $state;
for my $words ("approvals approve $gate", "gates approve $gate", "approvals respond $gate true", "resume --id $gate --approve yes", "resume $run",
    'serve token new --name x --role admin', 'serve link --name x', 'schedule run-now ask', 'event send go', "fork $run",
    'store backup /tmp/stolen', 'schedule register ask.lobster --trust')
{
    my @words = split / /, $words;
    for my $hidden (0, 1) {
        local $ENV{LOBSTER_RUN_ID};
        delete $ENV{LOBSTER_RUN_ID} if $hidden;
        my $child = fork() // die;
        if ($child == 0) {
            open STDOUT, '>', '/dev/null'; open STDERR, '>', '/dev/null'; open STDIN, '<', '/dev/null';
            exec $lobster, @words or exit 126;
        }
        waitpid $child, 0;
        way("program $words" . ($hidden ? ' outside of a run' : ''), $? == 0 ? 200 : 1);
    }
}

# The files and processes behind it.
for my $file ("$state/lobster.db", "$state/store.db", "/proc/$pid/environ", "/proc/$pid/mem", "/proc/$pid/root/$state/lobster.db", "$home/.config/lobster/secrets.toml") {
    my $opened = open my $handle, '<', $file;
    way("read $file", $opened ? 200 : 1);
    $opened = open $handle, '+<', $file;
    way("write $file", $opened ? 200 : 1);
}
# On the way to its own home it sees the way.
my @left = grep { index("$ENV{HOME}/", "$_/") != 0 } glob "$state/* $state/store/* $state/store/homes/*";
way('a list of the store', @left ? 200 : 1);
way('a signal to the server', kill(0, $pid) ? 200 : 1);
