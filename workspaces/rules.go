package workspaces

import (
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// What input may be at most, in bytes.
const (
	repositoryMaxBytes = 2048
	refMaxBytes        = 255
	pathMaxBytes       = 4095 // PATH_MAX, without its NUL
	runIDMaxBytes      = 256
	imageMaxBytes      = 512
	envMaxBytes        = 131_071 // MAX_ARG_STRLEN, without its NUL: one NAME=value
)

// NormalizeRepository returns the normal form of a repository as a model names it, so that
// spellings of one repository are equal: an https URL with a lower-case host, without the
// default port, ".git" and a trailing slash. It accepts owner/name (GitHub), an https URL
// without credentials, query or fragment and, with allowFile, file:///absolute/path. The
// normal form of a normal form is itself. The path keeps its case, also where a server
// ignores that.
//
// The error matches ErrInvalidInput. It never repeats any of the input, which may hold a
// credential.
func NormalizeRepository(input string, allowFile bool) (string, error) {
	normal, err := normalizeRepository(input, allowFile)
	if err != nil {
		return "", fmt.Errorf("%w: repository: %w", ErrInvalidInput, err)
	}
	return normal, nil
}

func normalizeRepository(input string, allowFile bool) (string, error) {
	switch {
	case input == "":
		return "", errors.New("empty")
	case len(input) > repositoryMaxBytes:
		return "", fmt.Errorf("longer than %d bytes", repositoryMaxBytes)
	case !printable(input) || strings.ContainsFunc(input, unicode.IsSpace):
		return "", errors.New("white space, control characters or invalid UTF-8")
	}
	scheme, rest, found := strings.Cut(input, "://")
	if !found {
		return normalizeOwnerName(input)
	}
	if strings.ContainsAny(rest, `@\`) || strings.Contains(rest, "%40") {
		return "", errors.New("the URL holds a user name, a password, an @ or a backslash; credentials are not accepted here")
	}
	if strings.ContainsAny(rest, "?#") {
		return "", errors.New("the URL holds a query or a fragment")
	}
	authority, path, _ := strings.Cut(rest, "/")
	path, err := normalizeURLPath(path)
	if err != nil {
		return "", err
	}
	switch strings.ToLower(scheme) {
	case "https":
		host, err := normalizeHost(authority)
		if err != nil {
			return "", err
		}
		return "https://" + host + path, nil
	case "file":
		if !allowFile {
			return "", errors.New("file URLs are not allowed here; use owner/name or an https URL")
		}
		if authority != "" {
			return "", errors.New("a file URL with a host; write file:///absolute/path")
		}
		return "file://" + path, nil
	}
	return "", errors.New("not an https URL; use owner/name or https://host/path")
}

var ownerName = regexp.MustCompile(`^([A-Za-z0-9][A-Za-z0-9_-]{0,99})/([A-Za-z0-9._-]{1,100})/?$`)

func normalizeOwnerName(input string) (string, error) {
	parts := ownerName.FindStringSubmatch(input)
	if parts == nil {
		return "", errors.New("neither owner/name (GitHub) nor an https URL")
	}
	path, err := normalizeURLPath(parts[1] + "/" + parts[2])
	if err != nil {
		return "", err
	}
	return "https://github.com" + path, nil
}

// normalizeURLPath returns the path of a repository's URL, given without its first slash, in
// one of its spellings: percent-encoding only where it must be.
func normalizeURLPath(escaped string) (string, error) {
	path, err := url.PathUnescape(strings.TrimRight(escaped, "/"))
	if err != nil {
		return "", errors.New("the URL's percent-encoding is broken")
	}
	if !printable(path) || strings.ContainsAny(path, "@:\\%?#\"<>^`{|}") {
		return "", errors.New("a character in the URL's path that no repository's has")
	}
	// An encoded slash, decoded here, would name another resource.
	if strings.Count(path, "/") != strings.Count(strings.TrimRight(escaped, "/"), "/") {
		return "", errors.New("an encoded slash in the URL's path")
	}
	segments := strings.Split(path, "/")
	last := &segments[len(segments)-1]
	if *last != ".git" { // the git directory of a work tree keeps its name
		*last = strings.TrimSuffix(*last, ".git")
		if strings.HasSuffix(*last, ".git") {
			return "", errors.New("the name ends in .git twice")
		}
	}
	for _, segment := range segments {
		if segment == "" || segment == "." || segment == ".." {
			return "", errors.New("the path is empty, or has an empty, . or .. segment")
		}
	}
	return (&url.URL{Path: "/" + strings.Join(segments, "/")}).EscapedPath(), nil
}

var (
	dnsName = regexp.MustCompile(`^[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?(\.[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?)*$`)

	// What a URL parser takes for an IPv4 address: 127.1, 0x7f.0.0.1, 2130706433. Only the
	// usual spelling may pass, or what is checked is not what is contacted.
	numericHost = regexp.MustCompile(`(^|\.)([0-9]+|0x[0-9a-f]*)$`)
)

// normalizeHost returns host[:port] in lower case, without the port of https.
func normalizeHost(authority string) (string, error) {
	host, port := strings.ToLower(authority), ""
	if i := strings.LastIndexByte(host, ':'); i > strings.LastIndexByte(host, ']') {
		host, port = host[:i], host[i+1:]
	}
	if inner, ok := strings.CutPrefix(host, "["); ok {
		inner, ok = strings.CutSuffix(inner, "]")
		address, err := netip.ParseAddr(inner)
		if !ok || err != nil || !address.Is6() || address.Zone() != "" {
			return "", errors.New("not an IPv6 address between the URL's brackets")
		}
		host = "[" + address.String() + "]"
	} else {
		host = strings.TrimSuffix(host, ".")
		if len(host) > 253 || !dnsName.MatchString(host) {
			return "", errors.New("the URL's host is no host name; write an international one in its xn-- form")
		}
		if numericHost.MatchString(host) {
			address, err := netip.ParseAddr(host)
			if err != nil || address.String() != host {
				return "", errors.New("the URL's host is an unusual spelling of an IPv4 address")
			}
		}
	}
	if port == "" {
		return host, nil
	}
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil || n == 0 {
		return "", errors.New("the URL's port is not a number from 1 to 65535")
	}
	if n == 443 {
		return host, nil
	}
	return host + ":" + strconv.FormatUint(n, 10), nil
}

// CheckRef says what is wrong with a ref as a model names it. It is a plain branch or tag,
// without refs/heads/ or refs/tags/, or HEAD, or a full commit id of 40 or 64 hexadecimal
// digits, and nothing that git reads as an option, a range, a refspec or a revision
// expression.
//
// A short commit id passes, since a branch may have the same name ("deadbeef"): that it
// names none is for the fetch to find out.
//
// The error matches ErrInvalidInput.
func CheckRef(ref string) error {
	if reason := badRef(ref); reason != "" {
		return fmt.Errorf("%w: ref %s: %s; name a branch, a tag or a full commit id", ErrInvalidInput, quoted(ref), reason)
	}
	return nil
}

// badRef is git check-ref-format, and stricter.
func badRef(ref string) string {
	switch {
	case ref == "":
		return "empty"
	case len(ref) > refMaxBytes:
		return fmt.Sprintf("longer than %d bytes", refMaxBytes)
	case !printable(ref) || strings.ContainsFunc(ref, unicode.IsSpace):
		return "white space, control characters or invalid UTF-8"
	case strings.HasPrefix(ref, "-"), strings.HasPrefix(ref, "+"):
		return "it begins with - or +"
	case ref == "refs", strings.HasPrefix(ref, "refs/"):
		return "not a full ref name, leave out refs/heads/ or refs/tags/"
	case strings.ContainsAny(ref, `~^:?*[\`), strings.Contains(ref, ".."), strings.Contains(ref, "@{"), ref == "@":
		return "a revision expression, a range or a refspec"
	case strings.HasSuffix(ref, "."):
		return "it ends with a dot"
	}
	for component := range strings.SplitSeq(ref, "/") {
		if component == "" || strings.HasPrefix(component, ".") || strings.HasSuffix(component, ".lock") {
			return "a component that is empty, begins with a dot or ends with .lock"
		}
	}
	return ""
}

// CleanPath returns a path relative to the root, without ".", ".." and repeated slashes: "."
// for the root itself. It accepts a path relative to the root, or /workspace or below. One that
// leaves the root at any point, read from left to right without regard to links, is
// refused, as are an empty one, NUL and more than 4,095 bytes. Any other name is an ordinary one; it
// may begin with a dash.
//
// The error matches ErrInvalidInput.
func CleanPath(path string) (string, error) {
	invalid := func(reason string) (string, error) {
		return "", fmt.Errorf("%w: path %s: %s", ErrInvalidInput, quoted(path), reason)
	}
	switch {
	case path == "":
		return invalid("empty")
	case len(path) > pathMaxBytes:
		return invalid(fmt.Sprintf("longer than %d bytes", pathMaxBytes))
	case strings.Contains(path, "\x00"):
		return invalid("it holds a NUL byte")
	}
	var clean []string
	outside := strings.HasPrefix(path, "/") // until the root has been entered
	for name := range strings.SplitSeq(path, "/") {
		switch {
		case name == "" || name == ".":
		case outside:
			if "/"+name != Root {
				return invalid("outside of " + Root)
			}
			outside = false
		case name != "..":
			clean = append(clean, name)
		case len(clean) == 0:
			return invalid("it leaves " + Root)
		default:
			clean = clean[:len(clean)-1]
		}
	}
	if outside {
		return invalid("outside of " + Root)
	}
	if len(clean) == 0 {
		return ".", nil
	}
	return strings.Join(clean, "/"), nil
}

var envName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

// CheckEnv says what is wrong with environment variables. A name is a letter or underscore, then
// letters, digits and underscores; a value is valid UTF-8 without NUL; both together have at
// most 131,070 bytes, what Linux takes.
//
// The error matches ErrInvalidInput. It holds no value.
func CheckEnv(env map[string]string) error {
	for name, value := range env {
		var reason string
		switch {
		case !envName.MatchString(name):
			reason = "the name is not letters, digits and underscores, a digit not first"
		case strings.Contains(value, "\x00"):
			reason = "the value holds a NUL byte"
		case !utf8.ValidString(value):
			reason = "the value is not valid UTF-8"
		case len(name)+1+len(value) > envMaxBytes:
			reason = fmt.Sprintf("longer than %d bytes", envMaxBytes-1)
		default:
			continue
		}
		return fmt.Errorf("%w: environment variable %s: %s", ErrInvalidInput, quoted(name), reason)
	}
	return nil
}

// CheckRunID says what is wrong with a run id: it is 1 to 256 bytes of UTF-8 without control
// characters. The error matches ErrInvalidInput.
func CheckRunID(id string) error {
	switch {
	case id == "":
		return fmt.Errorf("%w: run id: empty", ErrInvalidInput)
	case len(id) > runIDMaxBytes:
		return fmt.Errorf("%w: run id %s: longer than %d bytes", ErrInvalidInput, quoted(id), runIDMaxBytes)
	case !printable(id):
		return fmt.Errorf("%w: run id %s: control characters or invalid UTF-8", ErrInvalidInput, quoted(id))
	}
	return nil
}

// imageReference is the grammar of an image's name in a registry: [host[:port]/]path[:tag][@digest].
var imageReference = func() *regexp.Regexp {
	const (
		label  = `[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?`
		domain = label + `(\.` + label + `)*(:[0-9]{1,5})?`
		name   = `[a-z0-9]+((\.|_|__|-+)[a-z0-9]+)*`
		tag    = `[A-Za-z0-9_][A-Za-z0-9._-]{0,127}`
		digest = `[A-Za-z][A-Za-z0-9]*([+._-][A-Za-z][A-Za-z0-9]*)*:[0-9a-fA-F]{32,128}`
	)
	return regexp.MustCompile(`^(` + domain + `/)?` + name + `(/` + name + `)*(:` + tag + `)?(@` + digest + `)?$`)
}()

// CheckImage says what is wrong with the name of an image: a plain reference of at most 512 bytes,
// a tag and a digest allowed. The error matches ErrInvalidInput.
func CheckImage(image string) error {
	switch {
	case image == "":
		return fmt.Errorf("%w: image: empty", ErrInvalidInput)
	case len(image) > imageMaxBytes:
		return fmt.Errorf("%w: image: longer than %d bytes", ErrInvalidInput, imageMaxBytes)
	case !imageReference.MatchString(image):
		// Not quoted: what is no reference may be a URL with a password in it.
		return fmt.Errorf("%w: image: not a reference of the form [host[:port]/]name[:tag][@digest]", ErrInvalidInput)
	}
	return nil
}

var deploymentName = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$`)

// CheckDeployment says what is wrong with the name of a deployment: 1 to 63 lower-case letters,
// digits and dashes, neither first nor last a dash. The error matches ErrInvalidInput.
func CheckDeployment(name string) error {
	if !deploymentName.MatchString(name) {
		return fmt.Errorf("%w: deployment %s: not 1 to 63 of a-z, 0-9 and -, beginning and ending with a letter or digit", ErrInvalidInput, quoted(name))
	}
	return nil
}

// printable says that s is valid UTF-8 without control characters.
func printable(s string) bool {
	return utf8.ValidString(s) && !strings.ContainsFunc(s, unicode.IsControl)
}

// quoted is %q, bounded.
func quoted(s string) string {
	const most = 100
	if len(s) <= most {
		return strconv.Quote(s)
	}
	return fmt.Sprintf("%q and %d more bytes", s[:most], len(s)-most)
}
