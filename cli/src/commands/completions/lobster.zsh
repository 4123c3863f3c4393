#compdef lobster
# Completion of lobster for zsh. `lobster completions zsh` prints it.
_lobster() {
    local line
    local -a whole open
    while IFS= read -r line; do
        # More is to come after a folder or the name of an argument.
        case "${line%%:*}" in
            */|*=) open+=("$line") ;;
            *) whole+=("$line") ;;
        esac
    done < <(lobster complete zsh -- "${(@Q)words[2,CURRENT]}" 2>/dev/null)
    (( ${#whole} )) && _describe -V lobster whole
    (( ${#open} )) && _describe -V lobster open -S ''
    (( ${#whole} + ${#open} ))
}
if [ "$funcstack[1]" = "_lobster" ]; then
    _lobster "$@"
else
    compdef _lobster lobster
fi
