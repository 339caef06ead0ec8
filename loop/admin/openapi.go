package admin

import (
	_ "embed"
	"encoding/json"
	"net/http"
)

// openAPI describes the requests of Handler. TestOpenAPI writes it, from its table of operations and from the messages
// of codec/admin with their comments: go test ./loop/admin -run TestOpenAPI -rewrite.
//
//go:embed openapi.json
var openAPI []byte

// OpenAPI returns the description of the API: an OpenAPI 3.1 document, as JSON. The caller must not change it.
func OpenAPI() []byte { return openAPI }

func (i *Interface) getOpenAPI(*http.Request) (any, error) { return json.RawMessage(openAPI), nil }
