# Counting, for tally.sh.

# count_lines FILE: how many lines FILE has.
count_lines() {
	n=0
	while IFS= read -r line; do
		n=$((n + 1))
	done < "$1"
	echo "$n"
}

# count_words FILE: how many words FILE has.
count_words() {
	n=0
	while IFS= read -r line || [ -n "$line" ]; do
		set -f
		for word in $line; do
			n=$((n + 1))
		done
		set +f
	done < "$1"
	echo "$n"
}
