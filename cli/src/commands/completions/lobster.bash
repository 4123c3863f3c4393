# Completion of lobster for bash. `lobster completions bash` prints it.
_lobster() {
    local word
    COMPREPLY=()
    while IFS= read -r word; do
        COMPREPLY+=("$(printf '%q' "$word")")
    done < <(lobster complete bash --breaks "$COMP_WORDBREAKS" --line "${COMP_LINE:0:COMP_POINT}" 2>/dev/null)
    # More is to come after a folder or the name of an argument.
    if [[ ${#COMPREPLY[@]} -eq 1 && ${COMPREPLY[0]} == *[/=] ]]; then
        compopt -o nospace 2>/dev/null
    fi
}
complete -o nosort -F _lobster lobster 2>/dev/null || complete -F _lobster lobster
