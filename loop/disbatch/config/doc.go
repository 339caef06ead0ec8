// Package config reads config.json, the configuration that all programs of a Disbatch 4 site share, with the keys that
// Treadle adds. The package neither knows the database nor imports its driver: loop/disbatch/store turns MongoHost,
// Attributes and Auth into a connection.
package config
