. lib/count.sh
file=$(mktemp)
trap 'rm -f "$file"' EXIT
printf 'one\ntwo\n' > "$file"
got=$(count_lines "$file")
[ "$got" = 2 ] || { echo "count_lines: got $got, want 2"; exit 1; }
