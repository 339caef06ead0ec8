// The page works without this. With it, changes and refreshes replace the tables in place,
// and they are refreshed every minute while nobody is editing.
"use strict";
const everyMinute = 60000;

async function show(url, options) {
  const reply = await fetch(url, options);
  const page = new DOMParser().parseFromString(await reply.text(), "text/html");
  for (const part of ["main", "footer"]) {
    const fresh = page.querySelector(part);
    if (fresh) document.querySelector(part).replaceWith(fresh);
  }
}

function say(error) {
  const main = document.querySelector("main");
  const notice = main.querySelector(".notice") || main.insertBefore(document.createElement("p"), main.firstChild);
  notice.className = "notice";
  notice.textContent = "The server did not answer: " + error.message;
}

document.addEventListener("submit", (event) => {
  if (event.target.method !== "post") return;
  event.preventDefault();
  show(event.target.action, { method: "POST", body: new URLSearchParams(new FormData(event.target)) }).catch(say);
});

document.addEventListener("click", (event) => {
  if (event.target.id !== "refresh") return;
  event.preventDefault();
  show(location.href).catch(say);
});

setInterval(() => {
  const edited = [...document.querySelectorAll("main input, main textarea")].some((i) => i.value !== i.defaultValue);
  if (!document.hidden && !edited && !document.activeElement.matches("main input, main select, main textarea")) show(location.href).catch(say);
}, everyMinute);
