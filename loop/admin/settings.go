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

func (api *API) getSettings(*http.Request) (any, error) {
	if api.o.Configuration == nil {
		return nil, &badRequest{errNoConfiguration}
	}
	return &codec.Settings{Settings: api.o.Configuration.Settings()}, nil
}

func (api *API) postReload(*http.Request) (any, error) {
	if api.o.Configuration == nil {
		return nil, &badRequest{errNoConfiguration}
	}
	changes, err := api.o.Configuration.Reload()
	if err != nil {
		return nil, &badRequest{err}
	}
	return &codec.SettingChanges{Changes: append([]codec.SettingChange{}, changes...)}, nil // in JSON an array, also of none
}

// Reload takes the rules and cron entries of a configuration file in place of those before, all or none. It returns
// when the journal has what follows from them.
func (api *API) Reload(rules []sched.PolicyRule, cron []codec.CronEntry) error {
	err := api.replaceFile(rules, cron)
	return errors.Join(err, api.commit())
}

// replaceFile is Reload without the wait for the journal.
func (api *API) replaceFile(rules []sched.PolicyRule, cron []codec.CronEntry) error {
	api.mu.Lock()
	defer api.mu.Unlock()
	before := api.o
	api.o.Rules, api.o.Cron = rules, cron
	table, entries, err := api.mergedFile()
	if err != nil {
		api.o = before
		return err
	}
	if !reflect.DeepEqual(before.Rules, rules) {
		api.applyPolicies(table, false)
	}
	for _, name := range slices.Sorted(maps.Keys(api.cron)) {
		if entries[name] == nil {
			err = errors.Join(err, api.putCron(api.cron[name], nil))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(entries)) {
		if was := api.cron[name]; was == nil || !reflect.DeepEqual(was.CronEntry, entries[name].CronEntry) {
			err = errors.Join(err, api.putCron(was, entries[name]))
		}
	}
	return err
}

// mergedFile returns the rules and cron entries of the file and the run time together, and checks them.
func (api *API) mergedFile() (*sched.Policies, map[string]*cronEntry, error) {
	table, err := api.mergedPolicies()
	if err == nil && api.table.CheckJobKeys() == nil { // else an earlier rule is to blame
		err = table.CheckJobKeys()
	}
	if err != nil {
		return nil, nil, err
	}
	entries, err := api.mergedCron()
	if len(entries) > sched.MaxCronEntries {
		err = fmt.Errorf("there are %d cron entries; %d are the most", len(entries), sched.MaxCronEntries)
	}
	return table, entries, err
}
