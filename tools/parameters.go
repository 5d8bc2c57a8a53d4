package tools

import (
	"encoding/json"
	"fmt"

	einoschema "github.com/eino-contrib/jsonschema"
	"github.com/invopop/jsonschema"
)

// parameters returns the JSON Schema of a struct of arguments in Eino's type, without the
// fields named in without. The struct's tags hold everything: a field without omitempty is
// required, bounds are in jsonschema, descriptions in jsonschema_description.
func parameters[A any](without ...string) (*einoschema.Schema, error) {
	reflector := jsonschema.Reflector{Anonymous: true, DoNotReference: true, ExpandedStruct: true}
	reflected := reflector.Reflect(new(A))
	reflected.Version = ""
	for _, name := range without {
		reflected.Properties.Delete(name)
	}
	// Eino has its own copy of the type; JSON is what the two share.
	data, err := json.Marshal(reflected)
	if err != nil {
		return nil, fmt.Errorf("schema of the arguments: %w", err)
	}
	var schema einoschema.Schema
	if err := json.Unmarshal(data, &schema); err != nil {
		return nil, fmt.Errorf("schema of the arguments: %w", err)
	}
	return &schema, nil
}
