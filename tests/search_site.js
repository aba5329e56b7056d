// Searches a built site as its page does: node search_site.js FOLDER QUERY ... prints the pages found by each, best first.
const fs = require("fs");
const vm = require("vm");

const [folder, ...queries] = process.argv.slice(2);
const element = { lastChild: null };
const context = vm.createContext({
  document: { readyState: "loading", addEventListener() {}, getElementById: () => element },
  location: { href: "file:///search.html" },
  addEventListener() {},
  localStorage: { setItem() {} },
  URL,
  URLSearchParams,
});
context.window = context;
const load = (name) => vm.runInContext(fs.readFileSync(`${folder}/${name}`, "utf8"), context, name);
for (const name of ["documentation_options", "doctools", "sphinx_highlight", "language_data", "searchtools"])
  load(`_static/${name}.js`);
vm.runInContext("this.Search = Search", context);
load("searchindex.js");
const found = {};
for (const query of queries) {
  context.query = query;
  const results = vm.runInContext("Search._performSearch(...Search._parseQuery(query))", context);
  found[query] = results.map((result) => result[0]).reverse();
}
console.log(JSON.stringify(found));
