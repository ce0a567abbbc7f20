/** Bundles lib/panel into one module and one style sheet, as anywidget takes them; build.py calls it. */

const { readFileSync, writeFileSync } = require('node:fs');
const { join } = require('node:path');
const { rspack } = require('@rspack/core');

const notebook = join(__dirname, '..', 'fakegpu_lab', 'notebook');
const sheets = ['node_modules/uplot/dist/uPlot.min.css', 'style/views.css', 'style/panel.css'];

/** The licenses of the packages that the module contains, as a comment. */
function licenses() {
  const uplot = readFileSync(join(__dirname, 'node_modules/uplot/LICENSE'), 'utf8').trim();
  const lumino =
    'Copyright (c) Jupyter Development Team. Distributed under the terms of the Modified BSD License.';
  return `/*! Built of labextension/src/panel, with:\n\n@lumino/signaling: ${lumino}\n\nuPlot: ${uplot}\n*/`;
}

const compiler = rspack({
  mode: 'production',
  context: __dirname,
  entry: './lib/panel/index.js',
  devtool: false,
  experiments: { outputModule: true },
  output: {
    path: notebook,
    filename: 'panel.js',
    module: true,
    chunkFormat: 'module',
    library: { type: 'module' }
  },
  performance: { hints: false },
  plugins: [new rspack.BannerPlugin({ banner: licenses(), raw: true, stage: 5000 })],
  target: ['web', 'es2022']
});

compiler.run((error, stats) => {
  if (error || stats.hasErrors()) {
    process.stderr.write(`${error ?? stats.toString({ all: false, errors: true })}\n`);
    process.exit(1);
  }
  const read = name => readFileSync(join(__dirname, name), 'utf8').trim();
  writeFileSync(join(notebook, 'panel.css'), `${sheets.map(read).join('\n\n')}\n`);
  compiler.close(() => undefined);
});
