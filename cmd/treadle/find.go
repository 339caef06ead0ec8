package main

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// part is a piece of a page that can be found by a name: a section, or an entry of a list or a table. It is named by
// its texts in backquotes, or by its whole heading. Three dots in a name stand for what differs.
type part struct {
	topic string
	names []string
	text  string
}

// minMessage is how many letters besides its dots a message needs to be recognised.
const minMessage = 8

var (
	partStart = regexp.MustCompile("^(##|\\* `|\\| `)")
	quoted    = regexp.MustCompile("`([^`]+)`")
)

// partsOf returns the parts of a page.
func partsOf(topic, page string) (all []part) {
	open := false // whether the lines belong to the last part
	for line := range strings.Lines(page) {
		last := len(all) - 1
		switch {
		case partStart.MatchString(line):
			all = append(all, part{topic, namesIn(line), line})
			open = true
		case open && (strings.HasPrefix(all[last].text, "##") || strings.HasPrefix(line, "  ")):
			all[last].text += line
		default:
			open = false
		}
	}
	return all
}

// namesIn returns the names in the first line of a part. Of an entry only what it begins with is its name.
func namesIn(line string) (names []string) {
	for _, name := range quoted.FindAllStringSubmatch(line, -1) {
		names = append(names, name[1])
	}
	switch heading := strings.TrimLeft(line, "#"); {
	case heading == line:
		return names[:1]
	case names == nil:
		return []string{strings.TrimSpace(heading)}
	}
	return names
}

// matchedLetters returns how many letters of a name, besides its dots, are in a message with its values; 0: it is
// another message.
func matchedLetters(name, message string) int {
	letters := 0
	for text := range strings.SplitSeq(name, "...") {
		_, rest, found := strings.Cut(message, text)
		if !found {
			return 0
		}
		message, letters = rest, letters+len(text)
	}
	if letters < minMessage {
		return 0
	}
	return letters
}

// wordsOf matches a text as whole words, in letters of any case, with hyphens or without: timeout is time-out.
func wordsOf(text string) *regexp.Regexp {
	var letters []string
	for _, letter := range strings.ReplaceAll(text, "-", "") {
		letters = append(letters, regexp.QuoteMeta(string(letter)))
	}
	return regexp.MustCompile(`(?i)(^|[^a-z0-9])` + strings.Join(letters, "-?") + `($|[^a-z0-9])`)
}

// mentions lists the pages that have a text as words, each with its first line of prose that has them.
func mentions(text string) (list string, err error) {
	words := wordsOf(text)
	for _, topic := range topics {
		page, err := page(topic)
		if err != nil {
			return "", err
		}
		example := false
		for line := range strings.Lines(page) {
			example = example != strings.HasPrefix(line, "```")
			if !example && words.MatchString(line) && topic != "messages" {
				list += fmt.Sprintf("treadle help %s: %s\n", topic, strings.TrimSpace(line))
				break
			}
		}
	}
	return list, nil
}

// find returns the parts of all pages that a message with its values is of. If there are none, it returns those that
// have the words in a name, as a setting's.
func find(text string) (found []part, err error) {
	text = strings.Join(strings.Fields(strings.ReplaceAll(text, "`", "'")), " ")
	words := wordsOf(text)
	most, named := 0, []part{}
	for _, topic := range topics {
		page, err := page(topic)
		if err != nil {
			return nil, err
		}
		if topic == "messages" && len(found)+len(named) > 0 { // it says only which file has the message
			continue
		}
		for _, p := range partsOf(topic, page) {
			letters := 0
			for _, name := range p.names {
				letters = max(letters, matchedLetters(name, text))
			}
			if letters > most { // the shorter ones are parts of this message
				most, found = letters, nil
			}
			switch {
			case letters > 0 && letters == most:
				found = append(found, p)
			case slices.ContainsFunc(p.names, words.MatchString):
				named = append(named, p)
			}
		}
	}
	if found == nil {
		found = named
	}
	return found, nil
}

// listing prints parts, each below the command that prints its page.
func listing(parts []part) string {
	var text strings.Builder
	for _, p := range parts {
		fmt.Fprintf(&text, "treadle help %s:\n\n%s\n\n", p.topic, strings.TrimSpace(p.text))
	}
	return text.String()
}
