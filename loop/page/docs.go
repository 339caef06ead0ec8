package page

import (
	"bytes"
	"html/template"
	"io/fs"
	"net/http"
	"path"
	"strings"

	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/extension"
	"github.com/yuin/goldmark/parser"
	"github.com/yuin/goldmark/text"
	"github.com/yuin/goldmark/util"
)

// document is a document as the list of documents has it.
type document struct {
	Topic, Title, About string
}

type docsData struct {
	All  []document
	Here string
	Text template.HTML
}

// documents lists the documents.
func (s *Pages) documents(*http.Request) (*view, error) {
	return &view{name: "documents", title: "Documents", area: "/docs", data: &docsData{All: s.docs().list}, static: true}, nil
}

// document shows one document.
func (s *Pages) document(r *http.Request) (*view, error) {
	topic := r.PathValue("topic")
	all := s.docs()
	text, ok := all.text[topic]
	if !ok {
		return nil, &apiError{http.StatusNotFound, "there is no document of that name"}
	}
	d := &docsData{All: all.list, Here: topic, Text: text}
	title := topic
	for _, one := range d.All {
		if one.Topic == topic {
			title = one.Title
		}
	}
	return &view{name: "document", title: title, area: "/docs", data: d, static: true}, nil
}

// docs are the documents of the program, rendered.
type docs struct {
	list []document
	text map[string]template.HTML
}

// newDocs renders the documents, which the program has in it, so that they are trusted and whole.
func newDocs(files fs.FS, topics []string, root string) docs {
	d := docs{text: make(map[string]template.HTML)}
	for _, topic := range topics {
		source, err := fs.ReadFile(files, "docs/"+topic+".md")
		if err != nil {
			panic("BUG: " + err.Error())
		}
		heading, _, _ := bytes.Cut(source, []byte("\n"))
		title, about, _ := strings.Cut(strings.TrimPrefix(string(heading), "# "), ": ")
		d.list = append(d.list, document{topic, title, about})
		d.text[topic] = renderDocument(source, root)
	}
	return d
}

// renderDocument returns Markdown as HTML. Links to other documents lead to their pages below root.
func renderDocument(source []byte, root string) template.HTML {
	md := goldmark.New(goldmark.WithExtensions(extension.Table), goldmark.WithParserOptions(
		parser.WithAutoHeadingID(), parser.WithASTTransformers(util.Prioritized(documentLinks{root}, 100)),
	))
	context := parser.NewContext(parser.WithIDs(anchors{}))
	var b bytes.Buffer
	if err := md.Convert(source, &b, parser.WithContext(context)); err != nil {
		panic("BUG: " + err.Error())
	}
	// Wide tables and blocks scroll by themselves, which a keyboard must be able to do.
	html := strings.NewReplacer(
		"<table>", `<div class="scroll" tabindex="0"><table>`, "</table>", "</table></div>", "<pre>", `<pre tabindex="0">`,
	).Replace(b.String())
	return template.HTML(html) //nolint:gosec // goldmark passes no HTML of the source on
}

// documentLinks makes links to files NAME.md links to their pages.
type documentLinks struct{ root string }

// Transform implements parser.ASTTransformer.
func (d documentLinks) Transform(node *ast.Document, reader text.Reader, _ parser.Context) {
	_ = ast.Walk(node, func(n ast.Node, entering bool) (ast.WalkStatus, error) {
		link, ok := n.(*ast.Link)
		if !ok || !entering {
			return ast.WalkContinue, nil
		}
		file, anchor, found := strings.Cut(string(link.Destination), "#")
		if name, is := strings.CutSuffix(path.Base(file), ".md"); is && !strings.Contains(file, "://") {
			address := d.root + "/docs/" + name
			if found {
				address += "#" + anchor
			}
			link.Destination = []byte(address)
		}
		return ast.WalkContinue, nil
	})
}

// anchors names headings as links between the documents do: small letters, with - for blanks.
type anchors struct{}

// Generate implements parser.IDs.
func (anchors) Generate(heading []byte, _ ast.NodeKind) []byte {
	return []byte(strings.Map(func(r rune) rune {
		switch {
		case r == ' ':
			return '-'
		case r >= 'A' && r <= 'Z':
			return r + 'a' - 'A'
		case r >= 'a' && r <= 'z', r >= '0' && r <= '9', r == '-':
			return r
		}
		return -1
	}, strings.TrimSpace(string(heading))))
}

// Put implements parser.IDs.
func (anchors) Put([]byte) {}
