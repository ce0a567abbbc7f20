import { LabIcon } from '@jupyterlab/ui-components';

/** A chip with its pins. */
export const gpuIcon = new LabIcon({
  name: 'fakegpu-lab:gpu',
  svgstr: `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 24 24" width="16">
  <g class="jp-icon3 jp-icon-selectable" fill="#616161">
    <path fill-rule="evenodd" d="M5 7h14a1 1 0 0 1 1 1v8a1 1 0 0 1-1 1H5a1 1 0 0 1-1-1V8a1 1 0 0 1 1-1zm1
      2v6h12V9H6z"/>
    <circle cx="9.5" cy="12" r="2"/><circle cx="14.5" cy="12" r="2"/>
    <path d="M1.5 5h1.5v14H1.5zM6 18h2v2H6zM10 18h2v2h-2zM14 18h2v2h-2z"/>
  </g>
</svg>`
});
