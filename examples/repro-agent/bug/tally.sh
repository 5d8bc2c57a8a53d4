#!/bin/sh
# tally FILE...: lines and words of each file, then the sums.
. "$(dirname "$0")/lib/count.sh"

total_lines=0
total_words=0
for file in "$@"; do
	lines=$(count_lines "$file")
	words=$(count_words "$file")
	echo "$file: $lines lines, $words words"
	total_lines=$((total_lines + lines))
	total_words=$((total_words + words))
done
echo "total: $total_lines lines, $total_words words"
