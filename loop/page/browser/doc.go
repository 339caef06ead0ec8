// Package browser tests the pages of a Treadle program in a browser, Chromium. It is a module of its own, so that its
// libraries are not the program's. Run it with make browser.
package browser
