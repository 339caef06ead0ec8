package main

import (
	"embed"

	"treadle/loop/admin"
)

// packaged are the files that treadle print writes.
//
//go:embed package/alerts.yml package/grafana.json
var packaged embed.FS

// printCmd prints files for other programs.
type printCmd struct {
	Alerts  printAlertsCmd  `cmd:"" help:"Print the alerts for Prometheus."`
	Grafana printGrafanaCmd `cmd:"" help:"Print the board for Grafana."`
	OpenAPI printOpenAPICmd `cmd:"" name:"openapi" help:"Print the OpenAPI document of the HTTP API."`
	Man     printManCmd     `cmd:"" help:"Print the manual page."`
}

// Help implements kong.HelpProvider.
func (printCmd) Help() string {
	return `The files fit this version. The alerts expect the job "treadle" in Prometheus' scrape_configs. The board asks for its data source.

	treadle print alerts > treadle-alerts.yml
	treadle print grafana > treadle-board.json
	treadle print openapi > treadle-openapi.json`
}

type printAlertsCmd struct{}

// Run prints the alerts.
func (*printAlertsCmd) Run(con *console) error { return printPackaged(con, "alerts.yml") }

type printGrafanaCmd struct{}

// Run prints the board.
func (*printGrafanaCmd) Run(con *console) error { return printPackaged(con, "grafana.json") }

func printPackaged(con *console, name string) error {
	text, err := packaged.ReadFile("package/" + name)
	if err != nil {
		return err
	}
	_, err = con.out.Write(text)
	return err
}

type printOpenAPICmd struct{}

// Run prints the description of the API.
func (*printOpenAPICmd) Run(con *console) error {
	_, err := con.out.Write(admin.OpenAPI())
	return err
}
