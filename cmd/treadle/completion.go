package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/alecthomas/kong"

	"treadle/loop/client"
)

// completionCmd prints the script of a shell, which asks the program itself for the words.
type completionCmd struct {
	Bash  completionScript `cmd:"" help:"Print the script for bash."`
	Zsh   completionScript `cmd:"" help:"Print the script for zsh."`
	Fish  completionScript `cmd:"" help:"Print the script for fish."`
	Words completionWords  `cmd:"" hidden:"" help:"Print the words that may complete the last one, each with its help behind a tab."`
}

// Help implements kong.HelpProvider.
func (completionCmd) Help() string {
	return `The shell completes commands, flags, their values, the terms of filters, and the names of queues and jobs of the server that -H or TREADLE_ADMIN names.

	treadle completion bash > /etc/bash_completion.d/treadle
	treadle completion zsh > "${fpath[1]}/_treadle"
	treadle completion fish > ~/.config/fish/completions/treadle.fish`
}

// shells are the scripts. The words before the cursor, and the one at it, go to treadle completion words as they were
// typed, with their quotes. A word that ends with a colon, a comma or a quote goes on. When the program has no word,
// the shell proposes files.
var shells = map[string]string{
	"bash": `_treadle() {
	local IFS=$'\n' line
	COMPREPLY=()
	while read -r line; do
		COMPREPLY+=("${line%%$'\t'*}")
	done < <("${COMP_WORDS[0]}" completion words --bash -- "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null)
	if [[ ${#COMPREPLY[@]} == 1 && ${COMPREPLY[0]} == *[:,\"] ]]; then
		compopt -o nospace
	fi
}
complete -o default -F _treadle treadle
`,
	"zsh": `#compdef treadle
_treadle() {
	local -a found begun
	local line word
	for line in "${(@f)$("${words[1]}" completion words -- "${(@)words[2,CURRENT]}" 2>/dev/null)}"; do
		word=${line%%$'\t'*}
		case $word in
		'') ;;
		*[:,\"]) begun+=("${word//:/\\:}:${line#*$'\t'}") ;;
		*) found+=("${word//:/\\:}:${line#*$'\t'}") ;;
		esac
	done
	if (( $#found + $#begun )); then
		_describe treadle found -- begun -S ''
	else
		_files
	fi
}
if [[ $funcstack[1] == _treadle ]]; then
	_treadle
else
	compdef _treadle treadle
fi
`,
	"fish": `function __treadle_words
	set -l found (treadle completion words -- (commandline -opc)[2..] (commandline -ct) 2>/dev/null)
	if set -q found[1]
		printf '%s\n' $found
	else
		__fish_complete_path (commandline -ct)
	end
end
complete -c treadle -f -a '(__treadle_words)'
`,
}

type completionScript struct{}

// Run prints the script of the shell that the command is called as.
func (completionScript) Run(con *console, parsed *kong.Context) error {
	_, err := io.WriteString(con.out, shells[parsed.Selected().Name])
	return err
}

type completionWords struct {
	Bash bool     `help:"Print what bash puts in the place of its last word."`
	Word []string `arg:"" optional:"" help:"The words behind treadle as they were typed; the last is not complete."`
}

// Run prints the words.
func (w *completionWords) Run(c *cli, con *console, parsed *kong.Context) error {
	typed := joined(w.Word)
	if len(typed) == 0 {
		typed = []string{""}
	}
	words, quote := make([]string, len(typed)), byte(0)
	for i, word := range typed {
		words[i], quote = unquote(word)
	}
	for _, word := range c.complete(parsed.Model.Node, words, quote != 0) {
		if w.Bash {
			word = forBash(word, w.Word, typed[len(typed)-1], quote)
		}
		if _, err := fmt.Fprintln(con.out, word); err != nil {
			return err
		}
	}
	return nil
}

// joined returns the words as they were typed: bash takes = and : for words. A = between a flag and its value is left
// out.
func joined(words []string) (all []string) {
	for i := 0; i < len(words); i++ {
		switch {
		case words[i] == "=" && len(all) > 0 && strings.HasPrefix(all[len(all)-1], "--") && i+1 < len(words):
		case words[i] == "=" && len(all) > 0 && strings.HasPrefix(all[len(all)-1], "--"):
			all = append(all, "")
		case words[i] == ":" && len(all) > 0:
			all[len(all)-1] += ":"
			if i+1 < len(words) {
				all[len(all)-1] += words[i+1]
				i++
			}
		default:
			all = append(all, words[i])
		}
	}
	return all
}

// unquote returns the text that a shell makes of a word, and the quote that is open at its end; 0: none.
func unquote(word string) (text string, quote byte) {
	var b strings.Builder
	for i := 0; i < len(word); i++ {
		switch c := word[i]; {
		case c == quote:
			quote = 0
		case quote == 0 && (c == '\'' || c == '"'):
			quote = c
		case c == '\\' && quote != '\'' && i+1 < len(word) && (quote == 0 || strings.IndexByte("\"\\$`", word[i+1]) >= 0):
			i++
			b.WriteByte(word[i])
		default:
			b.WriteByte(c)
		}
	}
	return b.String(), quote
}

// forBash returns a line of completion words with what bash puts in the place of the last of its words, as quote says.
// last is the whole word as it was typed.
func forBash(line string, words []string, last string, quote byte) string {
	word, help, _ := strings.Cut(line, "\t")
	if quote == 0 && len(words) > 0 {
		begun := strings.TrimSuffix(last, words[len(words)-1]) // bash has it already
		if part := words[len(words)-1]; part == ":" || part == "=" {
			begun = last
		}
		before, _ := unquote(begun)
		word = strings.TrimPrefix(word, before)
	}
	special := map[byte]string{0: " \t\"'\\$`&|;()<>*?[]{}!#~", '"': "\"\\$`"}[quote]
	var b strings.Builder
	for i := range len(word) {
		if strings.IndexByte(special, word[i]) >= 0 {
			b.WriteByte('\\')
		}
		b.WriteByte(word[i])
	}
	return b.String() + "\t" + help
}

// complete returns the words that may stand for the last one, each with its help behind a tab. quoted reports whether a
// quote of the shell is open in it.
func (c *cli) complete(node *kong.Node, words []string, quoted bool) (all []string) {
	last, flag, arguments := words[len(words)-1], (*kong.Flag)(nil), []string(nil)
	for _, word := range words[:len(words)-1] {
		switch child := childOf(node, word); {
		case flag != nil:
			c.takeHost(flag, word)
			flag = nil
		case word == "--":
			return nil // a command line of its own
		case strings.HasPrefix(word, "-"):
			name, value, given := strings.Cut(word, "=")
			if flag = flagOf(node, name); flag != nil && given {
				c.takeHost(flag, value)
			}
			if given || flag != nil && flag.IsBool() {
				flag = nil
			}
		case child != nil:
			node = child
		default:
			arguments = append(arguments, word)
		}
	}
	propose := func(word, help string) {
		if strings.HasPrefix(word, last) {
			first, _, _ := strings.Cut(help, "\n")
			all = append(all, word+"\t"+first)
		}
	}
	switch {
	case flag != nil && flag.Name == "filter":
		c.proposeTerms(last, quoted, propose)
	case flag != nil:
		for _, value := range flag.EnumSlice() {
			propose(value, "")
		}
	case strings.HasPrefix(last, "-"):
		for _, group := range node.AllFlags(true) {
			for _, f := range group {
				propose("--"+f.Name, f.Help)
			}
		}
	case len(node.Children) > 0:
		for _, child := range node.Children {
			if !child.Hidden {
				propose(child.Name, child.Help)
			}
		}
	default:
		c.proposeArguments(node, arguments, last, quoted, propose)
	}
	slices.Sort(all)
	return all
}

// proposeArguments proposes what may stand for an argument of a command, behind others.
func (c *cli) proposeArguments(node *kong.Node, before []string, last string, quoted bool, propose func(word, help string)) {
	if len(node.Positional) == 0 {
		return
	}
	switch argument := node.Positional[min(len(before), len(node.Positional)-1)]; {
	case argument.Name == "filter":
		c.proposeTerms(last, quoted, propose)
	case len(before) >= len(node.Positional) && !argument.IsCumulative():
	case argument.Name == "queue" && node.Parent.Name == "queue", argument.Name == "to", argument.Name == "job" && before == nil:
		for _, name := range c.queueNames(last) {
			propose(name, "queue")
		}
	case node.Parent.Name == "job" && (argument.Name == "job" || argument.Name == "name") && !isJobID(before[len(before)-1]):
		for _, name := range c.jobNames(before[len(before)-1], last) {
			propose(name, "job")
		}
	}
}

// proposeTerms proposes what may complete the last term of a filter. An open quote of the shell lets a text have quotes
// of its own.
func (c *cli) proposeTerms(filter string, quoted bool, propose func(word, help string)) {
	start, inText := lastTerm(filter)
	if inText {
		return
	}
	before, term := filter[:start], filter[start:]
	key, value, found := strings.Cut(term, ":")
	if !found {
		for key, help := range client.FilterKeys() {
			if key == "text" && quoted {
				key += `:"`
			} else {
				key += ":"
			}
			propose(before+key, help)
		}
		return
	}
	switch key {
	case "queue":
		for _, name := range c.queueNames(value) {
			if !strings.ContainsAny(name, `" \`) {
				propose(before+key+":"+name, "queue")
			}
		}
	case "state":
		listed := value[:strings.LastIndexByte(value, ',')+1]
		for _, state := range client.JobStates() {
			if !slices.Contains(strings.Split(listed, ","), state) {
				propose(before+key+":"+listed+state, "state")
			}
		}
	}
}

// lastTerm returns where the last term of a filter begins, and whether its text has a quote that is not closed.
func lastTerm(filter string) (start int, inText bool) {
	for i := 0; i < len(filter); i++ {
		switch c := filter[i]; {
		case c == '\\' && inText:
			i++
		case c == '"':
			inText = !inText
		case c == ' ' && !inText:
			start = i + 1
		}
	}
	return start, inText
}

// takeHost takes the value of -H, which names the server of the queues.
func (c *cli) takeHost(flag *kong.Flag, value string) {
	if flag.Name == "host" {
		c.Host = value
	}
}

func childOf(node *kong.Node, name string) *kong.Node {
	for _, child := range node.Children {
		if child.Name == name {
			return child
		}
	}
	return nil
}

// flagOf returns a flag of a command by its name with dashes, or nil.
func flagOf(node *kong.Node, name string) *kong.Flag {
	for _, group := range node.AllFlags(false) {
		for _, f := range group {
			if name == "--"+f.Name || f.Short != 0 && name == "-"+string(f.Short) {
				return f
			}
		}
	}
	return nil
}

// Bounds of completion: the shell waits meanwhile, and nobody reads more words.
const (
	completionTime  = time.Second
	completionWord  = 255
	completionNames = 200
)

// queueNames returns names of queues that begin with a prefix; none when no server answers.
func (c *cli) queueNames(prefix string) (names []string) {
	return c.namesOf(func(ctx context.Context, a *client.Admin) (names []string, err error) {
		p, err := a.Queues(ctx, prefix, "", completionNames)
		for i := range p.Queues {
			names = append(names, p.Queues[i].Queue)
		}
		return names, err
	})
}

// jobNames returns names of jobs of a queue that begin with a prefix.
func (c *cli) jobNames(queue, prefix string) []string {
	if strings.ContainsAny(prefix, "*?") {
		return nil
	}
	quote := strings.NewReplacer(`\`, `\\`, `"`, `\"`)
	filter := fmt.Sprintf(`queue:"%s" name:"%s*"`, quote.Replace(queue), quote.Replace(prefix))
	return c.namesOf(func(ctx context.Context, a *client.Admin) (names []string, err error) {
		p, err := a.Jobs(ctx, filter, "", completionNames)
		for i := range p.Jobs {
			names = append(names, p.Jobs[i].Name)
		}
		return names, err
	})
}

// namesOf asks the server for names and returns those that a shell can show.
func (c *cli) namesOf(ask func(context.Context, *client.Admin) ([]string, error)) (names []string) {
	_ = c.withAdmin(func(ctx context.Context, a *client.Admin) error { // a shell has no place for an error
		ctx, cancel := context.WithTimeout(ctx, completionTime)
		defer cancel()
		all, err := ask(ctx, a)
		for _, name := range all {
			if name != "" && name == printable(name) && len(name) <= completionWord {
				names = append(names, name)
			}
		}
		return err
	})
	return names
}
