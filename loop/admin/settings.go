package admin

import (
	"errors"
	"fmt"
	"maps"
	"net/http"
	"reflect"
	"slices"

	codec "treadle/codec/admin"
	"treadle/sched"
)

var errNoConfiguration = errors.New("this server was not started with settings that can be read again")

func (i *Interface) getSettings(*http.Request) (any, error) {
	if i.o.Configuration == nil {
		return nil, &badRequest{errNoConfiguration}
	}
	return &codec.Settings{Settings: i.o.Configuration.Settings()}, nil
}

func (i *Interface) postReload(*http.Request) (any, error) {
	if i.o.Configuration == nil {
		return nil, &badRequest{errNoConfiguration}
	}
	changes, err := i.o.Configuration.Reload()
	if err != nil {
		return nil, &badRequest{err}
	}
	return &codec.SettingChanges{Changes: append([]codec.SettingChange{}, changes...)}, nil // in JSON an array, also of none
}

// Reload takes the rules and cron entries of a configuration file in place of those before, all or none. It returns
// when the journal has what follows from them.
func (i *Interface) Reload(rules []sched.PolicyRule, cron []codec.CronEntry) error {
	err := i.replaceFile(rules, cron)
	return errors.Join(err, i.commit())
}

// replaceFile is Reload without the wait for the journal.
func (i *Interface) replaceFile(rules []sched.PolicyRule, cron []codec.CronEntry) error {
	i.mu.Lock()
	defer i.mu.Unlock()
	before := i.o
	i.o.Rules, i.o.Cron = rules, cron
	table, entries, err := i.mergedFile()
	if err != nil {
		i.o = before
		return err
	}
	if !reflect.DeepEqual(before.Rules, rules) {
		i.applyPolicies(table, false)
	}
	for _, name := range slices.Sorted(maps.Keys(i.cron)) {
		if entries[name] == nil {
			err = errors.Join(err, i.putCron(i.cron[name], nil))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(entries)) {
		if was := i.cron[name]; was == nil || !reflect.DeepEqual(was.CronEntry, entries[name].CronEntry) {
			err = errors.Join(err, i.putCron(was, entries[name]))
		}
	}
	return err
}

// mergedFile returns the rules and cron entries of the file and the run time together, and checks them.
func (i *Interface) mergedFile() (*sched.Policies, map[string]*cronEntry, error) {
	table, err := i.mergedPolicies()
	if err == nil && i.table.CheckKeys() == nil { // else an earlier rule is to blame
		err = table.CheckKeys()
	}
	if err != nil {
		return nil, nil, err
	}
	entries, err := i.mergedCron()
	if len(entries) > sched.MaxCronEntries {
		err = fmt.Errorf("there are %d cron entries; %d are the most", len(entries), sched.MaxCronEntries)
	}
	return table, entries, err
}
