#!/bin/sh
# Runs every test below tests/ and says which failed.
cd "$(dirname "$0")/.." || exit 2
failed=0
for test in tests/*.test.sh; do
	if output=$(sh "$test" 2>&1); then
		echo "ok    $test"
	else
		failed=$((failed + 1))
		echo "FAIL  $test"
		echo "$output" | sed 's/^/      /'
	fi
done
[ "$failed" -eq 0 ] && echo "all tests passed" || echo "$failed failed"
[ "$failed" -eq 0 ]
