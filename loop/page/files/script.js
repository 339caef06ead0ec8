"use strict";
// Whatever is here can be done without it: pages load themselves again (?refresh=5), and forms ask before they change much.
(() => {
	const root = document.documentElement, stream = root.dataset.stream;
	const badge = document.getElementById("live"), hold = document.getElementById("hold");

	// Cells that change are replaced, but for those that a person is using. A stream begins with all cells.
	const put = ([name, html]) => {
		for (const cell of document.querySelectorAll("[data-live]")) {
			if (cell.dataset.live === name && cell.innerHTML !== html && !cell.contains(document.activeElement)) {
				cell.innerHTML = html;
			}
		}
	};

	let source = null, held = false, tries = 0, again = 0, silent = 0;
	const say = (word, title) => {
		badge.textContent = word;
		badge.title = title;
		badge.dataset.state = word;
	};
	const close = () => {
		clearTimeout(again);
		clearTimeout(silent);
		if (source) {
			source.close();
			source = null;
		}
	};
	const retry = () => {
		close();
		say("not live", "The server does not answer. The page shows what it was.");
		again = setTimeout(open, Math.min(30000, 1000 * 2 ** tries++) * (0.75 + Math.random() / 2));
	};
	// A stream that says nothing for 20 seconds has ended without a word.
	const alive = () => {
		clearTimeout(silent);
		silent = setTimeout(retry, 20000);
	};
	const open = () => {
		close();
		if (held || document.hidden) {
			return;
		}
		source = new EventSource(stream + "?at=" + encodeURIComponent(location.pathname + location.search));
		source.onopen = alive;
		source.onerror = retry;
		source.onmessage = (event) => {
			alive();
			tries = 0;
			say("live", "Changes are shown each second.");
			JSON.parse(event.data).forEach(put);
		};
	};
	if (stream && badge && window.EventSource) {
		badge.hidden = hold.hidden = false;
		say("not live", "Not connected yet.");
		hold.addEventListener("click", () => {
			held = !held;
			hold.textContent = held ? "Go on" : "Pause";
			hold.setAttribute("aria-pressed", held);
			if (held) {
				close();
				say("paused", "Changes are not shown.");
			} else {
				open();
			}
		});
		// One stream a visible tab: a browser has six connections to a server.
		document.addEventListener("visibilitychange", () => document.hidden ? close() : open());
		window.addEventListener("pagehide", close);
		window.addEventListener("pageshow", (event) => event.persisted && open());
		open();
	}

	// Another page stands in for this one, as while no leader serves: its cells are replaced until this one is back.
	if (root.dataset.again) {
		setInterval(async () => {
			const answer = await fetch(location.href, { headers: { Accept: "text/html" } }).catch(() => null);
			if (answer && answer.ok) {
				location.reload();
			} else if (answer) {
				const now = new DOMParser().parseFromString(await answer.text(), "text/html");
				now.querySelectorAll("[data-live]").forEach((cell) => put([cell.dataset.live, cell.innerHTML]));
			}
		}, 1000 * root.dataset.again);
	}

	// The head of a column of boxes selects all of them.
	const head = document.querySelector("thead .pick");
	if (head) {
		const all = document.createElement("input");
		all.type = "checkbox";
		all.setAttribute("aria-label", "Select all on this page");
		head.append(all);
		all.addEventListener("change", () => document.querySelectorAll("tbody .pick input").forEach((box) => { box.checked = all.checked; }));
	}
})();
