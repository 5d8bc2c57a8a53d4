package tools

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"github.com/cloudwego/eino/compose"

	"github.com/carrel-dev/carrel/workspaces"
)

// ErrorPrefix begins every result that reports a failure. A result of bash that has output
// begins with the output, and the failure stands after it.
const ErrorPrefix = "Error: "

// A refusal is a failure that was put into words for the model already.
type refusal string

func (r refusal) Error() string { return string(r) }

func (r refusal) Is(target error) bool { return target == workspaces.ErrInvalidInput }

func refuse(format string, args ...any) error { return refusal(fmt.Sprintf(format, args...)) }

// settle decides what a failure is: an error for Eino when it is none of the model's business (the end of
// the call's own context, an interrupt), which stays unchanged, else a result.
func settle(ctx context.Context, err error) (result string, _ error) {
	if _, ok := compose.IsInterruptRerunError(err); ok {
		return "", unlocated(err)
	}
	if ended := ctx.Err(); ended != nil {
		if errors.Is(err, ended) {
			return "", unlocated(err)
		}
		return "", ended
	}
	workspaces.ReportToolError(ctx, err)
	return ErrorPrefix + explain(err), nil
}

// explain says what happened and what the model can do about it.
func explain(err error) string {
	text := inWords(err)
	var in *located
	if errors.As(err, &in) {
		text = showRoot(text, in.root)
	}
	return text
}

func inWords(err error) string {
	var refused refusal
	if errors.As(err, &refused) {
		return clip(sentence(err.Error()))
	}
	where, reason := "the workspace", err
	var op *workspaces.OpError
	if errors.As(err, &op) {
		reason = op.Err
		if op.Workspace != "" {
			where = "workspace " + op.Workspace
		}
	}
	why := clip(reason.Error())
	const again = "Call create_workspace for a new one; what was in it is lost."
	next := ""
	switch {
	case errors.Is(err, workspaces.ErrGone):
		return sentence(where+" is gone: "+why) + " " + again
	case errors.Is(err, workspaces.ErrExpired):
		return sentence(where+" has reached the end of its lifetime: "+why) + " " + again
	case errors.Is(err, workspaces.ErrDisposed):
		return sentence(where+" was disposed") + " " + again
	case errors.Is(err, workspaces.ErrRunEnded):
		return "this run has ended. No tool can do anything for it any more."
	case errors.Is(err, workspaces.ErrClosed):
		return "the application is shutting down and hands out no workspaces any more. Stop here and report what is done."
	case errors.Is(err, workspaces.ErrLimitReached):
		next = "Go on in one that the run holds, or free one with dispose_workspace."
	case errors.Is(err, workspaces.ErrRefHeld):
		next = "Leave ref and image out to get the one that is held, or dispose_workspace it first."
	case errors.Is(err, workspaces.ErrOutcomeUnknown):
		next = "It may have run. Look at what it changed before you call it again."
	case errors.Is(err, workspaces.ErrUnavailable):
		next = "The workspace may well still be there: try again in a moment."
	case errors.Is(err, workspaces.ErrTooLarge):
		next = fmt.Sprintf("File tools handle at most %d bytes; use bash for larger files.", workspaces.FileMaxBytes)
	case errors.Is(err, fs.ErrNotExist):
		next = "list_files shows what there is."
	case errors.Is(err, fs.ErrPermission):
		next = "bash can show (ls -l) and change (chmod) the permissions."
	case isCheckout(err):
		next = "Check the spelling of repo and ref, or leave ref out for the default branch."
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		next = "It was stopped before it was done. Look at what it changed before you call it again."
	}
	return strings.TrimSpace(sentence(why) + " " + next)
}

func isCheckout(err error) bool {
	var checkout *workspaces.CheckoutError
	return errors.As(err, &checkout)
}

// A located error happened in a workspace whose real directory its text may name.
type located struct {
	error
	root string
}

func (l *located) Unwrap() error { return l.error }

// unlocated is err as it came from below.
func unlocated(err error) error {
	var in *located
	if errors.As(err, &in) {
		return in.error
	}
	return err
}

func sentence(text string) string {
	text = strings.TrimSpace(text)
	if text == "" || strings.HasSuffix(text, ".") || strings.HasSuffix(text, "?") || strings.HasSuffix(text, "!") {
		return text
	}
	return text + "."
}

// clip bounds a text that others wrote, and makes it valid UTF-8.
func clip(text string) string {
	const most = 4000
	text = strings.ToValidUTF8(text, "\uFFFD")
	if runes := []rune(text); len(runes) > most {
		return string(runes[:most]) + " [cut]"
	}
	return text
}
