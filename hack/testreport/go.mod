module github.com/carrel-dev/carrel/hack/testreport

go 1.25.0
