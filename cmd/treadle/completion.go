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

// Help is printed by treadle completion --help.
func (completionCmd) Help() string {
	return `The shell completes commands, flags, their values, and the names of queues of the server that -H or TREADLE_ADMIN names.

	treadle completion bash > /etc/bash_completion.d/treadle
	treadle completion zsh > "${fpath[1]}/_treadle"
	treadle completion fish > ~/.config/fish/completions/treadle.fish`
}

// shells are the scripts. The words before the cursor, and the one at it, go to treadle completion words. bash takes a
// part of a word behind = or : for a word of its own. When the program has no word, the shell proposes files.
var shells = map[string]string{
	"bash": `_treadle() {
	local IFS=$'\n' line
	COMPREPLY=()
	while read -r line; do
		COMPREPLY+=("${line%%$'\t'*}")
	done < <("${COMP_WORDS[0]}" completion words -- "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null)
}
complete -o default -F _treadle treadle
`,
	"zsh": `#compdef treadle
_treadle() {
	local -a found
	local line
	for line in "${(@f)$("${words[1]}" completion words -- "${(@)words[2,CURRENT]}" 2>/dev/null)}"; do
		[[ -n $line ]] && found+=("${${line%%$'\t'*}//:/\\:}:${line#*$'\t'}")
	done
	if (( $#found )); then
		_describe treadle found
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
	Word []string `arg:"" optional:"" help:"The words behind treadle; the last is not complete."`
}

// Run prints the words.
func (w *completionWords) Run(c *cli, con *console, parsed *kong.Context) error {
	words := joined(w.Word)
	if len(words) == 0 {
		words = []string{""}
	}
	for _, word := range c.complete(parsed.Model.Node, words) {
		if _, err := fmt.Fprintln(con.out, word); err != nil {
			return err
		}
	}
	return nil
}

// joined returns the words as they were typed: bash takes = and : for words. A = between a flag and its value is left out.
func joined(words []string) (all []string) {
	for i := 0; i < len(words); i++ {
		switch {
		case words[i] == "=" && len(all) > 0 && strings.HasPrefix(all[len(all)-1], "--") && i+1 < len(words):
		case words[i] == "=" && len(all) > 0 && strings.HasPrefix(all[len(all)-1], "--"):
			all = append(all, "")
		case words[i] == ":" && len(all) > 0 && i+1 < len(words):
			all[len(all)-1] += ":" + words[i+1]
			i++
		default:
			all = append(all, words[i])
		}
	}
	return all
}

// complete returns the words that may stand for the last one, each with its help behind a tab.
func (c *cli) complete(node *kong.Node, words []string) (all []string) {
	last, positional, flag := words[len(words)-1], 0, (*kong.Flag)(nil)
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
			positional++
		}
	}
	propose := func(word, help string) {
		if strings.HasPrefix(word, last) {
			first, _, _ := strings.Cut(help, "\n")
			all = append(all, word+"\t"+first)
		}
	}
	switch {
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
	case positional < len(node.Positional) && node.Positional[positional].Name == "queue":
		for _, name := range c.queueNames(last) {
			propose(name, "queue")
		}
	}
	slices.Sort(all)
	return all
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
	_ = c.withAdmin(func(ctx context.Context, a *client.Admin) error { // a shell has no place for an error
		ctx, cancel := context.WithTimeout(ctx, completionTime)
		defer cancel()
		p, err := a.Queues(ctx, prefix, "", completionNames)
		for i := range p.Queues {
			if name := p.Queues[i].Queue; name != "" && name == printable(name) && len(name) <= completionWord {
				names = append(names, name)
			}
		}
		return err
	})
	return names
}
