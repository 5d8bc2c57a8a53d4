// Command repro-agent is an agent that reproduces a reported bug: it checks a repository out,
// writes a failing test, runs it, fixes the bug, runs the test again and answers with output and diff.
//
//	repro-agent                                   the bundled repository and report, a scripted model, no network
//	repro-agent -repo owner/name -report bug.md   a real one; needs OPENAI_API_KEY
//
// With OPENAI_API_KEY set (and OPENAI_BASE_URL, OPENAI_MODEL) it talks to any
// endpoint that speaks OpenAI's chat API.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

func main() {
	config, err := parse(os.Args[1:], os.Stderr)
	if err != nil {
		if !errors.Is(err, flag.ErrHelp) {
			fmt.Fprintln(os.Stderr, "repro-agent:", err)
		}
		os.Exit(2)
	}
	// The first Ctrl-C cancels the run and disposes its workspaces; a second one ends the process at once.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop)
	if err := run(ctx, config, newModel, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "repro-agent:", err)
		os.Exit(1)
	}
}

// A config is what the flags and the environment say.
type config struct {
	provider   string
	image      string
	network    string
	repository string // empty: the bundled one
	ref        string
	report     string
	trace      string // OTLP endpoint; empty: no tracing
	stream     bool

	apiKey, baseURL, model string
}

func parse(args []string, output io.Writer) (config, error) {
	c := config{
		apiKey:  os.Getenv("OPENAI_API_KEY"),
		baseURL: os.Getenv("OPENAI_BASE_URL"),
		model:   os.Getenv("OPENAI_MODEL"),
	}
	flags := flag.NewFlagSet("repro-agent", flag.ContinueOnError)
	flags.SetOutput(output)
	flags.StringVar(&c.provider, "provider", "local", "where workspaces live: "+strings.Join(providerNames(), ", "))
	flags.StringVar(&c.image, "image", "", "the image of a container or pod (default: the provider's)")
	flags.StringVar(&c.network, "network", "", "the network of a container: none, bridge or the name of one (default: none for the bundled repository, else bridge)")
	flags.StringVar(&c.repository, "repo", "", "owner/name or an https URL (default: the bundled repository with a bug)")
	flags.StringVar(&c.ref, "ref", "", "branch, tag or full commit id (default: the remote's HEAD)")
	report := flags.String("report", "", "the bug report: a file, or the text itself (default: the bundled one)")
	flags.StringVar(&c.trace, "trace", "", "OTLP/HTTP endpoint for traces, such as http://localhost:4318")
	flags.BoolVar(&c.stream, "stream", false, "stream what the model says")
	if err := flags.Parse(args); err != nil {
		return c, err
	}
	if flags.NArg() > 0 {
		return c, fmt.Errorf("unexpected argument %q", flags.Arg(0))
	}
	if c.network == "" && c.repository == "" {
		c.network = "none"
	}
	switch {
	case *report == "" && c.repository == "":
		c.report = bundledReport()
	case *report == "":
		return c, errors.New("-repo needs a -report: a file, or the text itself")
	default:
		data, err := os.ReadFile(*report)
		switch {
		case err == nil:
			c.report = string(data)
		case strings.ContainsAny(*report, " \n"):
			c.report = *report
		default:
			return c, fmt.Errorf("the bug report: %w", err)
		}
	}
	if c.apiKey == "" && (c.repository != "" || *report != "") {
		return c, errors.New("without OPENAI_API_KEY there is only the scripted model, and it knows only the bundled repository and report")
	}
	return c, nil
}

// run is one run of the agent, from a temporary directory for what it needs on this host to its removal.
func run(ctx context.Context, c config, newModel modelMaker, out io.Writer) (err error) {
	scratch, err := os.MkdirTemp("", "repro-agent-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(scratch)) }()
	if scratch, err = filepath.EvalSymlinks(scratch); err != nil {
		return err
	}
	if c.repository == "" {
		if c.repository, err = bundledRepository(ctx, scratch); err != nil {
			return err
		}
	}
	shutdown, observer, tracer, err := startTracing(ctx, c.trace)
	if err != nil {
		return err
	}
	defer func() {
		flushing, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
		defer cancel()
		err = errors.Join(err, shutdown(flushing))
	}()
	place, err := newPlace(c, scratch)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, place.end()) }()
	model, name, err := newModel(ctx, c)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "model: %s\nprovider: %s\nrepository: %s\n", name, place.provider.Name(), c.repository)
	return reproduce(ctx, c, setup{place: place, model: model, observer: observer, tracer: tracer}, out)
}
