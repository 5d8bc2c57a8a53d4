package tools

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/eino-contrib/jsonschema"
)

// decode reads the arguments of a call as models write them into target, a pointer to the struct
// that schema describes. "", "{}" and "null" are equal, null is a field left out, numbers and booleans
// may come quoted, integers with a fraction of zero. Its errors are refusals that name the fields.
func decode(arguments string, schema *jsonschema.Schema, target any) error {
	given, err := parse(arguments)
	if err != nil {
		return refuse("the arguments are not valid: %v. %s", err, fields(schema))
	}
	var problems []string
	checked := make(map[string]any, len(given))
	for _, field := range given {
		property, ok := schema.Properties.Get(field.name)
		switch {
		case !ok:
			problems = append(problems, fmt.Sprintf("unknown field %s", quote(field.name)))
		case slices.ContainsFunc(given, func(other argument) bool { return other.name == field.name && other != field }):
			problems = append(problems, fmt.Sprintf("field %s is given more than once", field.name))
			checked[field.name] = nil
		case field.raw == "null":
		default:
			value, problem := convert(field.raw, property)
			if problem != "" {
				problems = append(problems, field.name+" "+problem)
			}
			checked[field.name] = value
		}
	}
	for _, name := range schema.Required {
		if _, ok := checked[name]; !ok {
			problems = append(problems, fmt.Sprintf("required field %s is missing", name))
		}
	}
	if len(problems) > 0 {
		slices.Sort(problems)
		problems = slices.Compact(problems)
		const most = 8
		if len(problems) > most {
			problems = append(problems[:most], "and more")
		}
		return refuse("%s. %s", strings.Join(problems, "; "), fields(schema))
	}
	data, err := json.Marshal(checked)
	if err != nil {
		return fmt.Errorf("arguments: %w", err)
	}
	return json.Unmarshal(data, target)
}

// An argument is one field of the JSON object, its value not yet looked at. It is
// compared by identity to find a field that is given twice.
type argument = *struct{ name, raw string }

// parse takes the JSON object apart.
func parse(arguments string) ([]argument, error) {
	if !utf8.ValidString(arguments) {
		return nil, errors.New("not UTF-8 text")
	}
	trimmed := strings.TrimSpace(arguments)
	if trimmed == "" || trimmed == "null" {
		return nil, nil
	}
	decoder := json.NewDecoder(strings.NewReader(trimmed))
	start, err := decoder.Token()
	if err != nil {
		return nil, broken(err, "")
	}
	if start != json.Delim('{') {
		return nil, fmt.Errorf("expected a JSON object, got %s", kind(trimmed))
	}
	var given []argument
	last := ""
	for decoder.More() {
		name, err := decoder.Token()
		if err != nil {
			return nil, broken(err, last)
		}
		last, _ = name.(string)
		var raw json.RawMessage
		if err := decoder.Decode(&raw); err != nil {
			return nil, broken(err, last)
		}
		given = append(given, &struct{ name, raw string }{last, string(raw)})
	}
	if _, err := decoder.Token(); err != nil {
		return nil, broken(err, last)
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("there is more text after the JSON object")
	}
	return given, nil
}

// broken says where JSON ends to be JSON.
func broken(err error, field string) error {
	text := "broken JSON: " + err.Error()
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		text = "broken JSON: it ends too early"
	}
	if field != "" {
		text += fmt.Sprintf(", at or after field %s", quote(field))
	}
	return errors.New(text)
}

// integral are the ways to write an integer that models use. It keeps the hexadecimal, the infinite
// and the astronomically long from strconv.
var integral = regexp.MustCompile(`^[+-]?[0-9]{1,20}(\.[0-9]{1,20})?([eE][+-]?[0-9]{1,2})?$`)

// convert returns a value as the schema of its field wants it, or what is wrong with it.
func convert(raw string, schema *jsonschema.Schema) (value any, problem string) {
	text := ""
	quoted := raw[0] == '"'
	if quoted {
		if err := json.Unmarshal([]byte(raw), &text); err != nil {
			return nil, "is no valid string"
		}
	}
	switch schema.Type {
	case "string":
		if !quoted {
			return nil, "must be a string, not " + kind(raw)
		}
		return text, checkLength(text, schema)
	case "boolean":
		word := raw
		if quoted {
			word = strings.ToLower(strings.TrimSpace(text))
		}
		switch word {
		case "true":
			return true, ""
		case "false":
			return false, ""
		}
		return nil, "must be true or false, not " + show(raw)
	case "integer":
		word := raw
		if quoted {
			word = strings.TrimSpace(text)
		}
		n, ok := integer(word)
		if !ok {
			return nil, "must be an integer, not " + show(raw)
		}
		return n, checkBounds(n, schema)
	}
	return nil, "has a type that is not supported"
}

func integer(word string) (int64, bool) {
	if n, err := strconv.ParseInt(word, 10, 64); err == nil {
		return n, true
	}
	if !integral.MatchString(word) {
		return 0, false
	}
	f, err := strconv.ParseFloat(word, 64)
	if err != nil || f != math.Trunc(f) || math.Abs(f) > 1<<53 {
		return 0, false
	}
	return int64(f), true
}

func checkLength(text string, schema *jsonschema.Schema) string {
	if schema.MinLength != nil && *schema.MinLength > 0 && text == "" {
		return "is empty"
	}
	if schema.MaxLength != nil && uint64(utf8.RuneCountInString(text)) > *schema.MaxLength {
		return fmt.Sprintf("has %d characters, at most %d are allowed", utf8.RuneCountInString(text), *schema.MaxLength)
	}
	return ""
}

func checkBounds(n int64, schema *jsonschema.Schema) string {
	if least, err := schema.Minimum.Int64(); err == nil && n < least {
		return fmt.Sprintf("is %d, the minimum is %d", n, least)
	}
	if most, err := schema.Maximum.Int64(); err == nil && n > most {
		return fmt.Sprintf("is %d, the maximum is %d", n, most)
	}
	return ""
}

// fields tells the model what there is.
func fields(schema *jsonschema.Schema) string {
	var list []string
	for pair := schema.Properties.Oldest(); pair != nil; pair = pair.Next() {
		word := pair.Value.Type
		if slices.Contains(schema.Required, pair.Key) {
			word += ", required"
		}
		list = append(list, fmt.Sprintf("%s (%s)", pair.Key, word))
	}
	return "Nothing was done. The valid fields are: " + strings.Join(list, ", ") + "."
}

// kind names what a JSON value is.
func kind(raw string) string {
	switch raw[0] {
	case '{':
		return "an object"
	case '[':
		return "an array"
	case '"':
		return "a string"
	case 't', 'f':
		return "a boolean"
	}
	return "a number"
}

// show is a short value itself, and what it is of a long one.
func show(raw string) string {
	if len(raw) > 40 {
		return kind(raw)
	}
	return raw
}

// quote is for names that a model made up.
func quote(name string) string {
	const most = 60
	if runes := []rune(name); len(runes) > most {
		name = string(runes[:most]) + "..."
	}
	return strconv.Quote(name)
}
