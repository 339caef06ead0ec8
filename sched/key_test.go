package sched

import (
	"fmt"
	"math/rand"
	"strings"
	"testing"
)

// TestJobKey: where a key is found, and that a job without it has the empty key.
func TestJobKey(t *testing.T) {
	f := func(rule, name, workload, want string) {
		t.Helper()
		k, err := parseJobKey(rule)
		if err != nil {
			t.Fatal(err)
		}
		if got := string(k.find([]byte(name), []byte(workload))); got != want {
			t.Errorf("by %s the key of %.40q with %.80q is %.200q, want %q", rule, name, workload, got, want)
		}
	}
	long := strings.Repeat("k", 300)
	f("name before :", "gold:1:2", "", "gold")
	f("name before :", "gold", "", "gold")
	f("name before :", ":1", "", "")
	f("name before :", "", "", "")
	f("name before --", "a-b--c", "", "a-b")
	f("name before :", long, "", long[:maxKey])
	f("json id", "", `{"id":"ada"}`, "ada")
	f("json id", "", ` { "x" : [1, {"id":2}, "}"] , "id" : 7 } `, "7")
	f("json id", "", `{"id":-1.5e3}`, "-1.5e3")
	f("json id", "", `{"id":true,`, "true")
	f("json id", "", `{"id":false}`, "false")
	f("json id", "", `{"id":"a\"b\\"}`, `a\"b\\`)
	f("json id", "", `{"id":""}`, "")
	f("json id", "", `{"id":"`+long+`"}`, long[:maxKey])
	f("json id", "", `{"a":"`+strings.Repeat(" ", maxKeyScan-30)+`","id":"x"}`, "x")
	f("json id", "", `{"a":"`+strings.Repeat(" ", maxKeyScan)+`","id":"x"}`, "")
	f("json id", "", `{"id":`+strings.Repeat("1", maxKeyScan)+`}`, "") // it may go on behind what is scanned
	f("json user.id", "", `{"user":{"name":"x","id":"u1"},"id":"no"}`, "u1")
	f("json user.id", "", `{"user":{"n":{"id":1}},"id":2}`, "")
	for _, none := range []string{
		``, ` `, `null`, `7`, `"id"`, `[1]`, `{`, `{}`, `{"id"`, `{"id":`, `{"id":}`, `{"id":null}`, `{"id":[1]}`, `{"id":{"a":1}}`, `{"id":nan}`, `{"id":7`,
		`{"id":"x`, `{"ID":"x"}`, `{id:"x"}`, `{"a" "id":"x"}`, `{"a":1 "id":"x"}`, `{"a":},"id":"x"}`, `{"a":,"id":"x"}`, `{"a":]],"id":"x"}`, "{\"a\\", "{\"a\":\"\\", "\x00", "{\"a\":\x00",
	} {
		f("json id", "", none, "")
		f("json user.id", "", `{"user":`+none, "")
	}
}

// TestJobKeyOfAnything: no bytes make find panic, and what it returns is bounded.
func TestJobKeyOfAnything(t *testing.T) {
	const letters = `{}[]":,\ .-01eEtrufalsnid` + "\n\x00\xff"
	rules := []JobKey{{before: ":"}, {path: []string{"id"}}, {path: []string{"user", "id"}}}
	r := rand.New(rand.NewSource(1))
	seeds := []string{`{"user":{"id":"x"},"id":1}`, `{"a":[1,{"b":"c"}],"id":true}`}
	for range 200_000 {
		b := []byte(seeds[r.Intn(len(seeds))])
		for range r.Intn(6) {
			b[r.Intn(len(b))] = letters[r.Intn(len(letters))]
		}
		b = b[:r.Intn(len(b)+1)]
		for i := range rules {
			if key := rules[i].find(b, b); len(key) > maxKey || !strings.Contains(string(b), string(key)) {
				t.Fatalf("the key of %q is %q", b, key)
			}
		}
	}
}

// TestJobKeyAllocates nothing.
func TestJobKeyAllocates(t *testing.T) {
	k, _ := parseJobKey("json user.id")
	name, workload := []byte("a:b"), []byte(`{"a":[1,2,{"x":"y"}],"user":{"id":"ada"}}`)
	if n := testing.AllocsPerRun(100, func() { k.find(name, workload) }); n > 0 {
		t.Errorf("a key takes %v allocations", n)
	}
}

// TestCheckKeys: a rule for keys that would do nothing is refused, and one that a wider rule completes is not.
func TestCheckKeys(t *testing.T) {
	key := map[string]string{"key": "name before :"}
	for _, c := range []struct {
		say   string
		rules []PolicyRule
	}{
		{"fair: it does nothing without a key", []PolicyRule{{"f", FromFile, map[string]string{"fair": "key"}}}},
		{"key-concurrency: it does", []PolicyRule{{"f*", FromFile, map[string]string{"key-concurrency": "1"}}, {"f", FromFile, key}}},
		{"weights: it does nothing without a key", []PolicyRule{{"f", FromFile, map[string]string{"weights": "a=2"}}}},
		{"without fair", []PolicyRule{{"f", FromFile, map[string]string{"weights": "a=2", "key": "json id"}}}},
		{"fair: it does nothing", []PolicyRule{{"*", FromFile, key}, {"f", FromFile, map[string]string{"fair": "key", "key": "no"}}}},
		{"", []PolicyRule{{"f", FromFile, map[string]string{"fair": "no", "key-concurrency": "0", "weights": ""}}}},
		{"", []PolicyRule{{"f*", FromFile, key}, {"f", FromRunTime, map[string]string{"key-concurrency": "1", "fair": "key", "weights": "a=2"}}}},
		{"", []PolicyRule{{"f*", FromFile, key}, {"f*", FromRunTime, map[string]string{"fair": "key"}}}},
	} {
		table, err := NewPolicies(c.rules)
		if err != nil {
			t.Fatal(err)
		}
		if err := table.CheckJobKeys(); (err == nil) != (c.say == "") || err != nil && !strings.Contains(err.Error(), c.say) {
			t.Errorf("%v: %v, want %q", c.rules, err, c.say)
		}
	}
}

// TestKeyValues: each key of a rule for keys reads what is meant and refuses what is not.
func TestKeyValues(t *testing.T) {
	for _, c := range []struct{ key, text, say string }{
		{"key", "name before :", ""}, {"key", "json user.id", ""}, {"key", "no", ""}, {"key-concurrency", "2", ""}, {"fair", "key", ""}, {"fair", "no", ""},
		{"weights", "", ""}, {"weights", "gold=3 a=b=2", ""},
		{"key", "", "reads name before"}, {"key", "name before ", "reads name before"}, {"key", "json ", "no path"}, {"key", "json a..b", "no path"},
		{"key", "user.id", "reads name before"}, {"key", "json " + strings.Repeat("x", 300), "at most"},
		{"key-concurrency", "-1", "no number"}, {"key-concurrency", "9999999999", "no number"}, {"fair", "yes", "key or no"},
		{"weights", "gold", "no weight"}, {"weights", "gold=0", "no weight"}, {"weights", "gold=1001", "no weight"}, {"weights", "gold=-1", "no weight"},
		{"weights", strings.Repeat("x", 200) + "=1", "more than"}, {"weights", strings.Repeat("x=1 ", 300), "there may be"},
	} {
		err := new(Policy).set(c.key, c.text)
		if (err == nil) != (c.say == "") || err != nil && !strings.Contains(err.Error(), c.say) {
			t.Errorf("%s = %.60q: %v, want %q in it", c.key, c.text, err, c.say)
		}
	}
	var p Policy
	_ = p.set("weights", "gold=3 a=b=2")
	if fmt.Sprint(p.Weights) != "map[a=b:2 gold:3]" {
		t.Errorf("the weights are %v", p.Weights)
	}
}
