. lib/count.sh
file=$(mktemp)
trap 'rm -f "$file"' EXIT
printf 'one two\nthree\n' > "$file"
got=$(count_words "$file")
[ "$got" = 3 ] || { echo "count_words: got $got, want 3"; exit 1; }
