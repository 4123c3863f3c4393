# Completion of lobster for fish. `lobster completions fish` prints it.
complete -c lobster -f -k -a '(lobster complete fish -- (commandline -opc)[2..-1] (commandline -ct) 2>/dev/null)'
